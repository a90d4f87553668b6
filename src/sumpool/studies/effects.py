"""What the studies of a few options of GSP share: their cells, and how a cell is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.report.store import ResultStore, Row
from sumpool.studies import RunStudy
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.seeds import seed_range
from sumpool.studies.testbed import Testbed, open_testbed, result, train_on
from sumpool.training import TrainConfig

LOSSES = ("c2", "pnca")
SEEDS = 3

#: Changes a configuration into that of a cell.
Change = Callable[[TrainConfig, Mapping[str, Any]], TrainConfig]


def effect_study(
    study: str,
    levels: Sequence[Mapping[str, Any]],
    change: Change,
    quick_levels: Sequence[Mapping[str, Any]] | None = None,
) -> RunStudy:
    """The ``run`` of a study that trains ``levels`` × losses × seeds.

    It is trained on glyph collages or, with ``data``, on collages of CIFAR-100 or on CUB.

    Args:
        study: Its name.
        levels: What cells differ in, besides loss and seed.
        change: Applies a level; a function of a module, since it is sent to other processes.
        quick_levels: The levels of the quick mode; None is all of them.
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
        """Train what is missing; see :class:`sumpool.studies.RunStudy`."""
        testbed = open_testbed(out_dir, data, quick=quick, weights=weights, progress=progress)
        store = ResultStore(out_dir, study, testbed.settings(), force=force)
        cells = [
            {**level, "loss": loss, "seed": seed}
            for seed in seed_range(seeds, quick, SEEDS)
            for loss in (LOSSES[:1] if quick else LOSSES)
            for level in (quick_levels or levels if quick else levels)
        ]
        work = partial(train_level, testbed, change)
        return run_cells(
            store, cells, work, jobs=jobs, quick=quick, progress=progress, description=study
        )

    return run


def train_level(testbed: Testbed, change: Change, cell: dict[str, Any]) -> CellResult:
    """Train and judge one cell."""
    config = replace(testbed.config, loss=cell["loss"], seed=cell["seed"], pool="gsp")
    return result(train_on(testbed, change(config, cell)), pictures=False)
