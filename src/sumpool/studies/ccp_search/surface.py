"""A smooth surface through noisy trials: Gaussian process regression on the unit square."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Length scales, along each side, and noise over signal variance that are tried.
LENGTHS = (0.15, 0.3, 0.6, 1.2, 2.4)
NOISES = (0.01, 0.05, 0.2, 0.5, 1.0)


class Surface(NamedTuple):
    """What is thought of the function that the trials are of.

    Attributes:
        mean: At each asked point, (q,).
        deviation: Standard deviation of that, (q,).
    """

    mean: Floats
    deviation: Floats


def fit_surface(points: Floats, values: Floats, asked: Floats) -> Surface:
    r"""The posterior of a Gaussian process with a Matérn 5/2 kernel.

    Length scales and noise are those of :data:`LENGTHS` and :data:`NOISES` that make the values
    most likely; the signal variance follows from them.

    Args:
        points: Where the trials were, (n, 2) in the unit square, n ≥ 1.
        values: What they gave, (n,).
        asked: Where to tell, (q, 2).

    Example:
        >>> points = np.array([[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]])
        >>> fit_surface(points, np.array([1.0, 3.0, 1.0]), points).mean.argmax()
        np.int64(1)
    """
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    seen = (values - centre) / scale
    best: tuple[float, tuple[float, float], float] | None = None
    for *lengths, noise in itertools.product(LENGTHS, LENGTHS, NOISES):
        both = (lengths[0], lengths[1])
        factor = _factor(points, both, noise)
        white = np.linalg.solve(factor, seen)
        # −2 log likelihood, the signal variance being the best for the rest.
        cost = len(seen) * np.log(max(float(white @ white) / len(seen), 1e-12))
        cost += 2 * np.log(np.diag(factor)).sum()
        if best is None or cost < best[0]:
            best = (float(cost), both, noise)
    assert best is not None
    _, lengths_, noise = best
    factor = _factor(points, lengths_, noise)
    white = np.linalg.solve(factor, seen)
    across = np.linalg.solve(factor, _kernel(points, asked, lengths_))  # (n, q)
    variance = float(white @ white) / len(seen) * np.clip(1 - (across**2).sum(0), 0, None)
    return Surface(centre + scale * (across.T @ white), scale * np.sqrt(variance))


def _factor(points: Floats, lengths: tuple[float, float], noise: float) -> Floats:
    covariance = _kernel(points, points, lengths) + noise * np.eye(len(points))
    factor: Floats = np.asarray(np.linalg.cholesky(covariance), np.float64)
    return factor


def _kernel(one: Floats, two: Floats, lengths: tuple[float, float]) -> Floats:
    apart = (one[:, None] - two) / np.array(lengths)
    distance = np.sqrt(5 * (apart**2).sum(-1))
    found: Floats = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return found
