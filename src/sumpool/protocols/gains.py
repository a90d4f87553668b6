"""Gains of one method over another, paired by fold and seed, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

from sumpool.protocols.combining import Combined, Values, combine
from sumpool.protocols.errors import ProtocolError
from sumpool.protocols.protocol import Protocol
from sumpool.protocols.run_results import MemberResult, check_same_images


@dataclass(frozen=True)
class PairedGain:
    """Mean difference between two methods, with its confidence interval.

    Attributes:
        dimension: Dimension of the searched embeddings.
        metric: Name of the metric.
        mean: Mean of the paired differences, on the scale 0..1.
        low: Lower end of the confidence interval.
        high: Upper end of the confidence interval.
        count: Number of pairs.
        confidence: Level of the interval.
    """

    dimension: int
    metric: str
    mean: float
    low: float
    high: float
    count: int
    confidence: float


def paired_gain(
    protocol: Protocol,
    ours: Sequence[MemberResult],
    theirs: Sequence[MemberResult],
    *,
    confidence: float = 0.95,
    **options: Any,
) -> list[PairedGain]:
    """Return the gains of ``ours`` over ``theirs``; see :func:`gains_between`.

    Args:
        protocol: The protocol of both.
        ours: All runs of one method.
        theirs: All runs of the other method.
        confidence: Level of the intervals.
        options: Further arguments of :func:`~sumpool.protocols.combining.combine`, whose errors
            are raised as well.
    """
    one, two = (combine(protocol, results, **options) for results in (ours, theirs))
    return gains_between(one, two, confidence=confidence)


def gains_between(
    ours: Combined, theirs: Combined, *, confidence: float = 0.95
) -> list[PairedGain]:
    """Return the gains of one method over another, for single models and concatenated embeddings.

    * Single models: Student's t interval over the differences of all (fold, seed) pairs.
    * Concatenated: the mean difference over all combinations. Its variance is Σ_f s_f² / S, where
      s_f² is the variance, over the S seeds of fold f, of the mean difference of the combinations
      with that seed; the degrees of freedom are those of Welch and Satterthwaite. Folds are fixed,
      seeds are random.

    With a single seed the spread is unknown, so gains of concatenations are omitted.

    Raises:
        ProtocolError: If the two differ in protocol, seeds, images, embedding size or metrics.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    _check_pairs(ours, theirs)
    gains = []
    for name, own in ours.single.items():
        difference = own - theirs.single[name]
        found = t_interval(difference.ravel(), confidence)
        if found is not None:
            gains.append(PairedGain(ours.dimension, name, *found, difference.size, confidence))
    folds, seeds = next(iter(ours.single.values())).shape
    if ours.concatenated is None or theirs.concatenated is None:
        return gains
    for name, own in ours.concatenated.items():
        difference = (own - theirs.concatenated[name]).reshape((seeds,) * folds)
        found = factor_interval(difference, confidence)
        if found is not None:
            wide = folds * ours.dimension
            gains.append(PairedGain(wide, name, *found, difference.size, confidence))
    return gains


def t_interval(values: Values, confidence: float) -> tuple[float, float, float] | None:
    """Return the mean and Student's t interval of ``values``; None for fewer than two values.

    Example:
        >>> import numpy as np
        >>> t_interval(np.array([1.0, 2.0, 3.0]), 0.95)
        (2.0, -0.484, 4.484)
    """
    if len(values) < 2:
        return None
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return _around(float(values.mean()), error, len(values) - 1, confidence)


def factor_interval(values: Values, confidence: float) -> tuple[float, float, float] | None:
    """Return the mean of a table over several random factors, with a confidence interval.

    The value at (i, j, …) is a function of draw i of the first factor, draw j of the second, and so
    on. The variance due to a factor is estimated from the means over all other factors.

    Args:
        values: The table, one axis of length S per factor.
        confidence: Level of the interval.

    Returns:
        Mean and ends of the confidence interval; None if S is 1.
    """
    draws = values.shape[0]
    if draws < 2:
        return None
    parts = []
    for axis in range(values.ndim):
        others = tuple(it for it in range(values.ndim) if it != axis)
        parts.append(float(values.mean(axis=others).var(ddof=1)) / draws)
    variance = sum(parts)
    # Welch and Satterthwaite: between S − 1, if one factor dominates, and the sum over factors.
    freedom = (
        variance**2 / sum(part**2 / (draws - 1) for part in parts) if variance > 0 else draws - 1
    )
    return _around(float(values.mean()), math.sqrt(variance), freedom, confidence)


def _around(
    mean: float, error: float, freedom: float, confidence: float
) -> tuple[float, float, float]:
    reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return mean, mean - reach, mean + reach


def _check_pairs(ours: Combined, theirs: Combined) -> None:
    if ours.protocol.name != theirs.protocol.name:
        raise ProtocolError(
            f"methods must be compared under one protocol, got {ours.protocol.name} and "
            f"{theirs.protocol.name}"
        )
    members = [[it.member for it in side.results] for side in (ours, theirs)]
    if members[0] != members[1]:
        raise ProtocolError(
            f"methods must have the same folds and seeds, got {len(members[0])} and "
            f"{len(members[1])} runs"
        )
    check_same_images(ours.results[0], ours.images, theirs.results[0], theirs.images)
    if ours.dimension != theirs.dimension:
        raise ProtocolError(
            f"methods must have embeddings of one size, got {ours.dimension} in "
            f"{ours.results[0].folder} and {theirs.dimension} in {theirs.results[0].folder}"
        )
    if set(ours.single) != set(theirs.single):
        raise ProtocolError(
            f"{theirs.results[0].folder} has the metrics {', '.join(theirs.single)}, "
            f"{ours.results[0].folder} has {', '.join(ours.single)}"
        )
