"""Screening of m, μ, ε and λ by half of a two-level factorial [gsp, tab. 5], [thesis, tab. 5.4].

    sumpool study screening                           (glyphs: 25 minutes on two cores)
    sumpool study screening --data cifar-100-python   (48 trainings: for a GPU)
    sumpool study screening --data CUB_200_2011       (hours)
    sumpool study screening --quick

Eight of the sixteen combinations, those in which an even number of options is at its high level
(I = m μ ε λ): main effects are free of each other and of effects of two options together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sumpool.studies.grids.effects import effect_study
from sumpool.training import TrainConfig

#: Low and high level of each option.
FACTORS: Mapping[str, tuple[float, float]] = {
    "prototypes": (16, 128),
    "mu": (0.3, 0.7),
    "eps": (0.5, 20.0),
    "zero_shot": (0.1, 0.5),
}


def half_factorial(factors: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    """The combinations with an even number of high levels.

    Example:
        >>> half_factorial({"a": (1, 2), "b": (3, 4), "c": (5, 6)})[1]
        {'a': 1, 'b': 4, 'c': 6}
    """
    return [
        {name: pair[high] for (name, pair), high in zip(factors.items(), levels, strict=True)}
        for levels in itertools.product((0, 1), repeat=len(factors))
        if sum(levels) % 2 == 0
    ]


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set all four options."""
    gsp = replace(config.gsp, prototypes=int(cell["prototypes"]), mu=cell["mu"], eps=cell["eps"])
    zero_shot = replace(config.zero_shot, weight=cell["zero_shot"])
    return replace(config, gsp=gsp, zero_shot=zero_shot)


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = effect_study("screening", half_factorial(FACTORS), change)
