"""What the studies of a few options of GSP share: levels that change its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sumpool.studies import RunStudy
from sumpool.studies.cells import CellResult
from sumpool.studies.shared.measuring import result
from sumpool.studies.shared.pooling_study import pooling_study
from sumpool.studies.shared.testbed import Testbed, train_on
from sumpool.training import TrainConfig

#: Changes a configuration into that of a cell.
Change = Callable[[TrainConfig, Mapping[str, Any]], TrainConfig]


def effect_study(
    study: str,
    levels: Sequence[Mapping[str, Any]],
    change: Change,
    quick_levels: Sequence[Mapping[str, Any]] | None = None,
) -> RunStudy:
    """The ``run`` of a study of GSP at several levels of its options.

    Args:
        study: Its name.
        levels: What cells differ in, besides loss and seed.
        change: Applies a level; a function of a module, since it is sent to other processes.
        quick_levels: The levels of the quick mode; None is all of them.
    """
    quickly = levels if quick_levels is None else quick_levels
    return pooling_study(
        study,
        lambda _, quick: quickly if quick else levels,
        partial(train_level, change),
        on_cub=True,
    )


def train_level(change: Change, testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and judge one cell."""
    config = replace(testbed.config, loss=cell["loss"], seed=cell["seed"], pool="gsp")
    return result(train_on(testbed, change(config, cell)), pictures=False)
