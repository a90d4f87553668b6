"""What the studies of a few options of GSP share: their cells, and how a cell is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.report.store import ResultStore, Row
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.seeds import seed_range
from sumpool.studies.testbed import Testbed, open_testbed, result, train_on
from sumpool.training import TrainConfig

LOSSES = ("c2", "pnca")
SEEDS = 3

#: Changes a configuration into that of a cell.
Change = Callable[[TrainConfig, Mapping[str, Any]], TrainConfig]


def run_effects(
    study: str,
    levels: Sequence[Mapping[str, Any]],
    change: Change,
    out_dir: Path,
    *,
    seeds: int | None,
    quick: bool,
    progress: bool,
    force: bool,
    data: Path | None,
    jobs: int | None,
    weights: Path | None,
) -> list[Row]:
    """Train ``levels`` × losses × seeds on collages or on CUB, whatever ``data`` holds.

    Args:
        study: Its name.
        levels: What cells differ in, besides loss and seed.
        change: Applies a level.
        out_dir: Folder of the results.
        seeds: How many seeds; None is 3.
        quick: One loss and a few steps.
        progress: Show a bar.
        force: Discard stored results first.
        data: Folder of CIFAR-100 or CUB.
        jobs: Cells that run side by side; None is one a core.
        weights: A pretrained ResNet20 for collages; None pretrains one in the folder.
    """
    testbed = open_testbed(out_dir, data, quick=quick, weights=weights, progress=progress)
    store = ResultStore(out_dir, study, testbed.settings(), force=force)
    cells = [
        {**level, "loss": loss, "seed": seed}
        for seed in seed_range(seeds, quick, SEEDS)
        for loss in (LOSSES[:1] if quick else LOSSES)
        for level in levels
    ]
    work = partial(train_level, testbed, change)
    return run_cells(
        store, cells, work, jobs=jobs, quick=quick, progress=progress, description=study
    )


def train_level(testbed: Testbed, change: Change, cell: dict[str, Any]) -> CellResult:
    """Train and judge one cell."""
    config = replace(testbed.config, loss=cell["loss"], seed=cell["seed"], pool="gsp")
    return result(train_on(testbed, change(config, cell)), pictures=False)
