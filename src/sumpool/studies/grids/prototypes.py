"""Number m of prototypes × inverse smoothing ε [gsp, fig. 8].

sumpool study prototypes                           (glyphs: 62 minutes on two cores)
sumpool study prototypes --data cifar-100-python   (120 trainings: for a GPU)
sumpool study prototypes --data CUB_200_2011       (hours)
sumpool study prototypes --quick
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sumpool.studies.grids.effects import effect_study
from sumpool.training import TrainConfig

LEVELS = tuple(
    {"prototypes": count, "eps": eps}
    for count in (16, 64, 128, 256)
    for eps in (0.5, 5.0, 10.0, 20.0, 50.0)
)


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set m and ε."""
    gsp = replace(config.gsp, prototypes=cell["prototypes"], eps=cell["eps"])
    return replace(config, gsp=gsp)


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = effect_study("prototypes", LEVELS, change, [LEVELS[number] for number in (0, 2, 5, 7)])
