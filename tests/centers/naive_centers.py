"""Means and regularizers as loops over numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def random_centers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def rows_of(centers: Tensor) -> list[list[float]]:
    """For each center, its cosines with the centers of other classes."""
    points = centers.unsqueeze(1) if centers.ndim == 2 else centers
    found = []
    for a, one in enumerate(points):
        others = [q for b, other in enumerate(points) if a != b for q in other]
        found += [[float(p @ q / (p.norm() * q.norm())) for q in others] for p in one]
    return found


def apart(cosine: float) -> float:
    return math.sqrt(2 - 2 * cosine)


def log_exp(values: list[float], lam: float) -> float:
    return math.log(sum(math.exp(lam * v) for v in values) / len(values)) / lam


def power(values: list[float], lam: float) -> float:
    return float((sum(v**lam for v in values) / len(values)) ** (1 / lam))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def r1(rows: list[list[float]], gamma: float, of: Callable[[float], float]) -> float:
    """Mean over centers of (1/γ) log Σ e^{γ s}."""
    return mean([math.log(sum(math.exp(gamma * of(s)) for s in row)) / gamma for row in rows])


def k_mean(rows: list[list[float]], k: int) -> float:
    """Mean over centers of the mean of the k largest distances, or of the |k| smallest."""
    return mean(
        [mean(sorted((apart(s) for s in row), reverse=k > 0)[: abs(k)]) for row in rows],
    )


def minus_distance(cosine: float) -> float:
    return -apart(cosine)


def flat(rows: list[list[float]], of: Callable[[float], float]) -> list[float]:
    return [of(s) for row in rows for s in row]


#: What each regularizer of the catalog is, from rows of cosines and its constant.
NAIVE: dict[str, Callable[[list[list[float]], float], float]] = {
    "r1": lambda rows, lam: r1(rows, lam, lambda s: s),
    "r1-distance": lambda rows, lam: r1(rows, lam, minus_distance),
    "r1-far": lambda rows, lam: -r1(rows, lam, apart),
    "r2": lambda rows, lam: power(flat(rows, lambda s: (1 + s) / 2), lam),
    "r2-distance": lambda rows, lam: float(mean([d**-lam for d in flat(rows, apart)]) ** (1 / lam)),
    "r2-far": lambda rows, lam: -power(flat(rows, apart), lam),
    "k-near": lambda rows, lam: -k_mean(rows, -int(lam)),
    "k-far": lambda rows, lam: -k_mean(rows, int(lam)),
    "uniformface": lambda rows, lam: mean([1 / d for d in flat(rows, apart)]),
    "mhe": lambda rows, lam: mean([d**-lam for d in flat(rows, apart)]),
}
