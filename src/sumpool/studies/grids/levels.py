"""The ``run`` function of studies that vary a few options of generalized sum pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.studies.cells import CellResult
from sumpool.studies.shared.measuring import result
from sumpool.studies.shared.pooling_study import Change, Level, pooling_study
from sumpool.studies.shared.study import RunStudy
from sumpool.studies.shared.testbed import Testbed, train_on, tuning_testbed
from sumpool.training import StopConfig


def gsp_study(
    study: str, levels: Sequence[Level], change: Change, quick_levels: Sequence[Level] | None = None
) -> RunStudy:
    """Return the ``run`` of a study of GSP at several levels of its options.

    ``change`` applies a level. CUB follows the tuning protocol of [gsp, suppl. 1.1], with λ = 0.1.
    ``quick_levels`` are the levels of quick mode; None uses all.
    """
    few = levels if quick_levels is None else quick_levels
    return pooling_study(
        study,
        lambda _, quick: few if quick else levels,
        partial(train_level, change),
        adapt=as_tuned,
    )


def as_tuned(testbed: Testbed, out_dir: Path, quick: bool) -> Testbed:
    """Return the testbed for the ablations of [gsp]."""
    del out_dir, quick
    return tuning_testbed(testbed, StopConfig(patience=10), folds=5, zero_shot=0.1)


def train_level(change: Change, testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and evaluate one cell."""
    config = replace(testbed.config, loss=cell["loss"], seed=cell["seed"], pool="gsp")
    trained = train_on(testbed, change(config, cell))
    return result(trained, evaluated_on=testbed.evaluated_on)
