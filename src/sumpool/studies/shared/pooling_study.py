"""What the studies that train poolings share: their ``run``, from a testbed to stored rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.studies import RunStudy
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.testbed import Testbed, open_testbed
from sumpool.system.rows import ResultStore, Row
from sumpool.training import ConfigError

LOSSES = ("c2", "pnca")
SEEDS = 3

#: What cells differ in, besides loss and seed: given the testbed, and whether all is to be quick.
Levels = Callable[[Testbed, bool], Iterable[Mapping[str, Any]]]
#: Trains and judges a cell. It is sent to other processes: a function of a module, or a partial.
Train = Callable[[Testbed, dict[str, Any]], CellResult]
#: Makes of a testbed that of a study, in its folder; the flag says whether all is to be quick.
Adapt = Callable[[Testbed, Path, bool], Testbed]


def pooling_study(
    study: str,
    levels: Levels,
    train: Train,
    *,
    on_cub: bool,
    losses: Sequence[str] = LOSSES,
    adapt: Adapt | None = None,
) -> RunStudy:
    """The ``run`` of a study that trains levels × losses × seeds.

    It is trained on glyph collages or, with ``data``, on collages of CIFAR-100 or on CUB.

    Args:
        study: Its name.
        levels: What its cells differ in.
        train: Trains one.
        on_cub: Whether it can be run on CUB.
        losses: The losses, that of the quick mode first.
        adapt: Changes what all its cells share; None leaves the testbed as it is.
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
        """Train what is missing; see :class:`sumpool.studies.RunStudy`.

        Quick means one loss and a few steps. Without ``weights`` collages of CIFAR-100 start from
        a ResNet20 that is pretrained in the folder first.
        """
        testbed = open_testbed(out_dir, data, quick=quick, weights=weights, progress=progress)
        if testbed.name == "CUB" and not on_cub:
            raise ConfigError(f"data must be CIFAR-100, but {data} holds CUB")
        if adapt is not None:
            testbed = adapt(testbed, out_dir, quick)
        store = ResultStore(out_dir, study, testbed.settings(), force=force)
        cells = [
            {**level, "loss": loss, "seed": seed}
            for seed in seed_range(seeds, quick, SEEDS)
            for loss in (losses[:1] if quick else losses)
            for level in levels(testbed, quick)
        ]
        return run_cells(
            store,
            cells,
            partial(train, testbed),
            jobs=jobs,
            quick=quick,
            progress=progress,
            description=study,
        )

    return run
