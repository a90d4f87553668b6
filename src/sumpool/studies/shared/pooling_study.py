"""The ``run`` function of studies that train on a testbed: levels × losses × seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.study import RunStudy
from sumpool.studies.shared.testbed import Testbed, open_testbed
from sumpool.system.rows import ResultStore, Row
from sumpool.training import ConfigError, TrainConfig

LOSSES = ("c2", "pnca")
SEEDS = 3

#: Options that distinguish a cell from others, besides loss and seed.
Level = Mapping[str, Any]
#: Applies a level to a configuration.
Change = Callable[[TrainConfig, Level], TrainConfig]
#: Returns the levels for a testbed; the flag is true in quick mode.
Levels = Callable[[Testbed, bool], Iterable[Level]]
#: Trains and evaluates a cell. Must be picklable: a module-level function, or a partial of one.
Train = Callable[[Testbed, dict[str, Any]], CellResult]
#: Adapts the testbed to a study, given its folder; the flag is true in quick mode.
Adapt = Callable[[Testbed, Path, bool], Testbed]


def pooling_study(
    study: str,
    levels: Levels,
    train: Train,
    *,
    on_cub: bool = True,
    losses: Sequence[str] = LOSSES,
    adapt: Adapt | None = None,
) -> RunStudy:
    """Return the ``run`` of a study on glyph collages or, with ``data``, CIFAR-100 collages or CUB.

    Quick mode uses only the first of ``losses``. ``adapt`` changes the settings of all cells.
    """

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
        used = seed_range(seeds, quick, SEEDS)
        testbed = open_testbed(out_dir, data, quick=quick, weights=weights, progress=progress)
        if testbed.name == "CUB" and not on_cub:
            raise ConfigError(f"data must be CIFAR-100, but {data} holds CUB")
        if adapt is not None:
            testbed = adapt(testbed, out_dir, quick)
        store = ResultStore(out_dir, study, testbed.settings(), force=force)
        cells = [
            {**level, "loss": loss, "seed": seed}
            for seed in used
            for loss in (losses[:1] if quick else losses)
            for level in levels(testbed, quick)
        ]
        work = partial(train, testbed)
        return run_cells(store, cells, work, jobs=jobs, quick=quick, progress=progress)

    return run
