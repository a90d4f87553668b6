"""Sum pooling and the zero-shot loss, each on and off [gsp, tab. 1], [thesis, tab. 5.3].

    sumpool study components                           (glyphs: 12 minutes on two cores)
    sumpool study components --data cifar-100-python   (24 trainings: for a GPU)
    sumpool study components --data CUB_200_2011       (hours)
    sumpool study components --quick

The zero-shot loss needs attributes: without GSP it is given those of μ = 1, where the pooling is
average pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sumpool.studies.grids.effects import effect_study
from sumpool.studies.shared.testbed import ZERO_SHOT
from sumpool.training import TrainConfig

LEVELS = tuple(
    {"gsp": gsp, "zero_shot": zero_shot} for gsp in (False, True) for zero_shot in (False, True)
)


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Switch the components."""
    if not cell["gsp"]:
        config = replace(config, gsp=replace(config.gsp, mu=1.0))
    if cell["zero_shot"]:
        config = replace(config, zero_shot=zero_shot_of(config))
    return config


def zero_shot_of(config: TrainConfig) -> Any:
    """The zero-shot loss of this testbed: the study's own on collages, the papers' λ elsewhere."""
    if config.format == "cub":
        return replace(config.zero_shot, weight=0.1)
    return ZERO_SHOT


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = effect_study("components", LEVELS, change)
