"""The share μ of an image that is pooled [gsp, fig. 6].

    sumpool study share                           (glyphs: 22 minutes on two cores)
    sumpool study share --data cifar-100-python   (42 trainings: for a GPU)
    sumpool study share --data CUB_200_2011       (hours)
    sumpool study share --quick

A collage's foreground takes a quarter of it; μ = 1 is average pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sumpool.studies.grids.effects import effect_study
from sumpool.training import TrainConfig

LEVELS = tuple({"mu": mu} for mu in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0))


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set μ."""
    return replace(config, gsp=replace(config.gsp, mu=cell["mu"]))


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = effect_study("share", LEVELS, change, LEVELS[1::5])
