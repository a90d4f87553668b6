"""Main effects of factors at two levels, from runs at some of their combinations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sumpool.report.section import grouped, values
from sumpool.system.rows import Row

#: Labels of the factors by their name in a cell.
LABELS = {
    "prototypes": "prototypes m",
    "mu": "share μ",
    "eps": "inverse smoothing ε",
    "zero_shot": "zero-shot weight λ",
}


class Effect(NamedTuple):
    """Main effect of a factor."""

    low: float  #: Lowest level of the factor
    high: float  #: Highest level of the factor
    difference: float  #: Mean at the highest level minus mean at the lowest level
    error: float | None  #: Standard error of the difference; None if no run was repeated


def combination(row: Row) -> tuple[float, ...]:
    """Return the factor levels of a cell."""
    return tuple(float(row.cell[factor]) for factor in LABELS)


def main_effects(rows: Sequence[Row], metric: str, scale: float = 1.0) -> Mapping[str, Effect]:
    """Compute the main effect of each factor that has two or more levels.

    The effect is the mean over combinations with the highest level minus the mean over those with
    the lowest, each combination averaged over seeds. Its standard error uses only the spread over
    seeds, pooled over combinations, s² = Σ (y − ȳ_c)² / Σ (n_c − 1), so that effects of other
    factors do not count as noise.
    """
    found = {
        levels: [scale * value for value in values(own, metric)]
        for levels, own in grouped(rows, combination).items()
        if values(own, metric)
    }
    freedom = sum(len(some) - 1 for some in found.values())
    squares = sum(
        (value - statistics.fmean(some)) ** 2 for some in found.values() for value in some
    )
    effects = {}
    for place, factor in enumerate(LABELS):
        steps = sorted({levels[place] for levels in found})
        if len(steps) < 2:
            continue
        sides = [
            [some for levels, some in found.items() if levels[place] == step]
            for step in (steps[0], steps[-1])
        ]
        low, high = (statistics.fmean(map(statistics.fmean, side)) for side in sides)
        # A mean of k means of n_c values has variance s² Σ 1/n_c / k².
        parts = sum(sum(1 / len(some) for some in side) / len(side) ** 2 for side in sides)
        error = math.sqrt(squares / freedom * parts) if freedom else None
        effects[factor] = Effect(steps[0], steps[-1], high - low, error)
    return effects
