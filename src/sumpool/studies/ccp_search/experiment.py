"""Bayesian search for the pull λ and the number of proxies [thesis, fig. 3.5].

    sumpool study ccp-search              (glyphs: 24 runs)
    sumpool study ccp-search --data DIR   (CIFAR-100 or CUB: for a GPU)

After a few points spread over the plane, Optuna's Gaussian process sampler
(``pip install sumpool[tune]``) chooses where to train next, by validation MAP@R. Every trial is
stored, and the next points depend only on the stored trials: an interrupted search resumes bit for
bit with ``--jobs 1``. More jobs request several points at once; if they are interrupted, later
points differ from those of an uninterrupted search. ``--seeds`` trains every point with several
seeds and reports their mean. Expected on CUB: λ between 1e-5 and 1e-1 works, no pull or a stronger
one does not; more proxies are better, up to about eight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from sumpool.studies.ccp_search.trials import Trial, trials_of
from sumpool.studies.cells import run_cells
from sumpool.studies.shared.ccp import prepare_tuned, train_level, with_method
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.testbed import open_testbed
from sumpool.system.rows import ROWS, ResultStore, Row, read_rows
from sumpool.training import TrainConfig
from sumpool.tune.sampling import import_optuna, suggest
from sumpool.tune.space import Dimension

#: Number of trials, and of those spread before the sampler chooses, in full and in quick mode.
TRIALS, START = 24, 8
QUICK_TRIALS, QUICK_START = 3, 2
#: Search ranges of pull and proxies, and the pool, as large as the maximum number of proxies.
PULLS, PROXIES, POOL = (1e-6, 1.0), (1, 12), 12
SPACE = (
    Dimension("pull", low=PULLS[0], high=PULLS[1], log=True),
    Dimension("proxies", low=PROXIES[0], high=PROXIES[1], whole=True),
)
LOSS = "c2"


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
    data: Path | None = None,
    jobs: int | None = None,
    weights: Path | None = None,
) -> list[Row]:
    """Train the missing trials; see :class:`~sumpool.studies.shared.study.RunStudy`.

    ``jobs`` is also the number of points requested at once; ``seeds`` and ``jobs`` default to 1.
    """
    import_optuna("the study ccp-search")
    used = seed_range(seeds, quick, 1)
    testbed = open_testbed(out_dir, data, quick=quick, weights=weights, progress=progress)
    testbed = prepare_tuned(testbed, out_dir, quick)
    settings = {**testbed.settings(), "loss": LOSS, "pool": POOL}
    store = ResultStore(out_dir, "ccp-search", settings, force=force)
    trials, start = (QUICK_TRIALS, QUICK_START) if quick else (TRIALS, START)
    work = partial(train_level, change, testbed)

    def fill(cells: Sequence[dict[str, Any]]) -> None:
        run_cells(store, cells, work, jobs=jobs or 1, quick=quick, progress=False)

    # Points trained with only some of the seeds come first, so that the sampler sees complete ones.
    begun = _points(out_dir)
    fill([{**point, "seed": seed} for point in begun for seed in used])
    with tqdm(
        total=trials, initial=len(begun), desc="ccp-search", unit="trial", disable=not progress
    ) as bar:
        while len(done := _trials(out_dir)) < trials:
            asked = ask(done, min(jobs or 1, trials - len(done)), start)
            fill([{**point, "loss": LOSS, "seed": seed} for point in asked for seed in used])
            bar.update(len(asked))
    return read_rows(out_dir)


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set pull and proxies."""
    return with_method(
        config, "alternating", pull=cell["pull"], proxies=cell["proxies"], candidates=POOL
    )


def ask(done: Sequence[Trial], count: int, start: int) -> list[dict[str, Any]]:
    """Return ``trial``, ``pull`` and ``proxies`` of up to ``count`` points to train next.

    The first ``start`` trials are spread evenly; no more are returned at once than remain of these.
    """
    known = {it.number for it in done}
    if missing := [number for number in range(start) if number not in known]:
        return [{"trial": number, **spread_point(number)} for number in missing[:count]]
    points = [({"pull": it.pull, "proxies": it.proxies}, it.value) for it in done]
    # Seeded by the number of trials: the search depends only on the stored trials.
    found = suggest(points, SPACE, count, seed=len(done))
    return [{"trial": number, **it} for number, it in enumerate(found, max(known) + 1)]


def spread_point(number: int) -> dict[str, Any]:
    """Return point ``number`` of a sequence that fills the plane evenly.

    Example:
        >>> spread_point(0)
        {'pull': 0.001, 'proxies': 7}
    """
    across, up = (0.5 + number * np.array([0.7548776662466927, 0.5698402909980532])) % 1
    low, high = np.log10(PULLS)
    fewest, most = PROXIES
    proxies = fewest + int(up * (most - fewest + 1))
    return {"pull": float(f"{10 ** (low + across * (high - low)):.3g}"), "proxies": proxies}


def _trials(folder: Path) -> list[Trial]:
    """Return the stored trials; empty before the first."""
    return trials_of(read_rows(folder) if (folder / ROWS).is_file() else [])


def _points(folder: Path) -> list[dict[str, Any]]:
    """Return the cells of the stored trials without their seeds, in trial order."""
    cells = [trial.rows[-1].cell for trial in _trials(folder)]
    return [{name: it for name, it in cell.items() if name != "seed"} for cell in cells]
