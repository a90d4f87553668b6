"""What one method has over another, paired by fold and seed, with a confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy import stats

from sumpool.protocols.combining import Combined, Values, combine
from sumpool.protocols.errors import ProtocolError
from sumpool.protocols.protocol import Protocol
from sumpool.protocols.run_results import MemberResult, check_same_images


@dataclass(frozen=True)
class PairedGain:
    """Mean difference of two methods, and where it lies.

    Attributes:
        dimension: Number of dimensions that were searched.
        metric: Which metric.
        mean: Mean of the paired differences, as a share of 1.
        low: Lower end of its confidence interval.
        high: Upper end of it.
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
    seeds: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
    device: torch.device | str = "cpu",
) -> list[PairedGain]:
    """What ``ours`` has over ``theirs``; see :func:`gains_between`.

    Args:
        protocol: The protocol of both.
        ours: All trainings of one method.
        theirs: All trainings of the other.
        seeds: Trainings of each fold; None is the number of the protocol.
        confidence: Level of the intervals.
        progress: Whether to show a progress bar.
        device: Where combinations are judged.

    Raises:
        MissingMemberError: If trainings are missing; names each.
        ProtocolError: If the two were not judged on the same images.
    """
    one, two = (
        combine(protocol, it, seeds=seeds, progress=progress, device=device)
        for it in (ours, theirs)
    )
    return gains_between(one, two, confidence=confidence)


def gains_between(
    ours: Combined, theirs: Combined, *, confidence: float = 0.95
) -> list[PairedGain]:
    """What one method has over another, of single models and of models side by side.

    * Single models: the interval of Student's t over the differences of all (fold, seed) pairs.
    * Models side by side: the mean difference over all combinations, whose variance is
      Σ_f s_f² / S, with s_f² the variance over the S seeds of fold f of the mean difference that
      the combinations with this seed have; the degrees of freedom are those of Welch and
      Satterthwaite. Folds are taken as given, seeds as drawn.

    With a single seed nothing is known of the spread: such gains are left out.

    Args:
        ours: One method.
        theirs: The other, under the same protocol with as many seeds.
        confidence: Level of the intervals, in (0, 1).

    Raises:
        ProtocolError: If the two cannot be paired.
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
    if ours.joined is None or theirs.joined is None:
        return gains
    for name, own in ours.joined.items():
        difference = (own - theirs.joined[name]).reshape((seeds,) * folds)
        found = factor_interval(difference, confidence)
        if found is not None:
            wide = folds * ours.dimension
            gains.append(PairedGain(wide, name, *found, difference.size, confidence))
    return gains


def t_interval(values: Values, confidence: float) -> tuple[float, float, float] | None:
    """Mean of ``values`` and Student's interval around it; None of fewer than two.

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
    """Mean of a table over several drawn factors, and an interval around it.

    The value at (i, j, …) is a function of draw i of the first factor, draw j of the second, and so
    on. What a factor adds to the variance of the mean is estimated from the means over all others.

    Args:
        values: The table, one axis a factor, all of them of the same length S.
        confidence: Level of the interval.

    Returns:
        Mean and ends of the interval; None if S is 1.
    """
    draws = values.shape[0]
    if draws < 2:
        return None
    parts = []
    for axis in range(values.ndim):
        others = tuple(it for it in range(values.ndim) if it != axis)
        parts.append(float(values.mean(axis=others).var(ddof=1)) / draws)
    variance = sum(parts)
    # Welch and Satterthwaite: between S − 1, if one factor is all, and their sum.
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
    members = [[it.member for it in side.judged] for side in (ours, theirs)]
    if members[0] != members[1]:
        raise ProtocolError(
            f"methods must have the same folds and seeds, got {len(members[0])} and "
            f"{len(members[1])} trainings"
        )
    check_same_images(ours.judged[0], ours.images, theirs.judged[0], theirs.images)
    if ours.dimension != theirs.dimension:
        raise ProtocolError(
            f"methods must have embeddings of one size, got {ours.dimension} in "
            f"{ours.judged[0].folder} and {theirs.dimension} in {theirs.judged[0].folder}"
        )
    if set(ours.single) != set(theirs.single):
        raise ProtocolError(
            f"{theirs.judged[0].folder} has the metrics {', '.join(theirs.single)}, "
            f"{ours.judged[0].folder} has {', '.join(ours.single)}"
        )
