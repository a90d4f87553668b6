"""Transport problems: random ones, ones whose answer is known, ones that are hard to solve."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.transport import TransportProblem, prototype_costs


def source(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_cost(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Costs between 0 and 2, the range of distances between normalized vectors."""
    return 2 * torch.rand(shape, generator=source(seed), dtype=dtype)


def random_features(
    *batch: int, n: int, m: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Features (..., n, d) and prototypes (m, d) with norms on both sides of 1."""
    g = source(seed)
    features = torch.randn(*batch, n, d, generator=g, dtype=dtype)
    features = features * 2 * torch.rand(*batch, n, 1, generator=g, dtype=dtype)
    prototypes = torch.randn(m, d, generator=g, dtype=dtype)
    prototypes = prototypes * torch.rand(m, 1, generator=g, dtype=dtype)
    return features / math.sqrt(d), prototypes / math.sqrt(d)


def features_on_prototypes(batch: int, n: int, m: int, d: int, near: int, seed: int = 0) -> Tensor:
    """Costs of random unit vectors, ``near`` of the n features being prototypes themselves."""
    g = source(seed)
    prototypes = torch.randn(m, d, generator=g, dtype=torch.float64)
    features = torch.randn(batch, n, d, generator=g, dtype=torch.float64)
    features[:, :near] = prototypes[:near]
    unit = torch.nn.functional.normalize
    return prototype_costs(unit(features, dim=-1), unit(prototypes, dim=-1))


def random_mask(*shape: int, seed: int = 0) -> Tensor:
    """A mask that leaves at least the first feature of each image."""
    mask = torch.rand(shape, generator=source(seed)) < 0.6
    mask[..., 0] = True
    return mask


class Known(NamedTuple):
    """A problem with its solution."""

    problem: TransportProblem
    weights: Tensor
    attributes: Tensor


def planted(log_odds: Tensor, m: int, eps: float, seed: int = 0) -> Known:
    """The problem whose solution has the log-odds x_j: costs are chosen to fit them.

    With any split q of what a feature sends, c_ji = (τ − x_j − log q_ji)/ε has ℓ_j = x_j − τ, so
    that p_j = σ(x_j)/(nμ) for μ = mean σ(x). τ is set so that the least cost is 0.
    """
    n = log_odds.shape[-1]
    split = torch.randn(n, m, generator=source(seed), dtype=log_odds.dtype).softmax(-1)
    exponents = log_odds.unsqueeze(-1) + split.log()
    cost = (exponents.max() - exponents) / eps
    share = log_odds.sigmoid()
    weights = share / share.sum()
    return Known(TransportProblem(cost, float(share.mean()), eps), weights, weights @ split)


def two_levels(near: int, far: int, gap: float, mu: float, eps: float) -> Known:
    """``near`` features at cost 0 and ``far`` ones at cost ``gap``, one prototype.

    y = e^τ solves near·y/(1 + y) + far·ry/(1 + ry) = nμ with r = e^{−ε gap}: a quadratic.
    """
    n = near + far
    r = math.exp(-eps * gap)
    a, b, c = r * n * (1 - mu), near + far * r - n * mu * (1 + r), -n * mu
    root = math.sqrt(b * b - 4 * a * c)
    y = -2 * c / (b + root) if b > 0 else (root - b) / (2 * a)
    share = torch.tensor([y / (1 + y)] * near + [r * y / (1 + r * y)] * far, dtype=torch.float64)
    cost = torch.tensor([0.0] * near + [gap] * far, dtype=torch.float64).unsqueeze(-1)
    return Known(TransportProblem(cost, mu, eps), share / (n * mu), torch.ones(1).double())


def mirrored(n: int, eps: float) -> Known:
    """Costs that lie symmetrically about 1 and μ = 1/2: by symmetry x_j = ε(1 − c_j)."""
    half = random_cost(n // 2, 1, seed=n)
    cost = torch.cat([half, 2 - half])
    weights = (eps * (1 - cost[:, 0])).sigmoid() * 2 / n
    return Known(TransportProblem(cost, 0.5, eps), weights, torch.ones(1).double())


def alike(n: int, m: int, mu: float, eps: float) -> Known:
    """All costs equal: everything is uniform."""
    problem = TransportProblem(torch.full((n, m), 0.7, dtype=torch.float64), mu, eps)
    uniform = torch.ones(n).double() / n, torch.ones(m).double() / m
    return Known(problem, *uniform)


def spread(scale: float, shift: float, n: int = 20, seed: int = 0) -> Tensor:
    return scale * torch.randn(n, generator=source(seed), dtype=torch.float64) + shift


KNOWN = {
    "one feature": planted(torch.tensor([-0.8]).double(), m=3, eps=5.0),
    "one prototype": planted(spread(2.0, 0.0), m=1, eps=5.0),
    "gentle": planted(spread(0.5, -1.0), m=4, eps=2.0),
    "sharp": planted(spread(40.0, -10.0), m=4, eps=50.0),
    "little is sent": planted(spread(3.0, -8.0), m=4, eps=5.0),
    "nearly all is sent": planted(spread(3.0, 9.0), m=4, eps=5.0),
    "two levels, part of the near": two_levels(10, 39, gap=1.0, mu=0.1, eps=5.0),
    "two levels, all of the near": two_levels(10, 40, gap=1.5, mu=0.2, eps=20.0),
    "two levels, some of the far": two_levels(3, 9, gap=0.5, mu=0.8, eps=10.0),
    "mirrored": mirrored(12, eps=4.0),
    "mirrored, sharp": mirrored(50, eps=100.0),
    "alike": alike(7, 3, mu=0.3, eps=5.0),
    "alike, all sent": alike(49, 64, mu=1.0, eps=0.5),
}


def profiles(n: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Nearest costs (n,) that try a root finder: plateaus, clusters, gaps of all sizes.

    Some exceed the range [0, 2] of distances; the solvers take any cost.
    """
    g = source(n)
    place = torch.arange(n, dtype=dtype)
    noise = torch.rand(n, generator=g, dtype=dtype)
    found = {
        "even": 2 * place / max(n - 1, 1),
        "big gaps": 2 * place,
        "geometric, shrinking": 2 ** -place.clamp(max=60),
        "geometric, growing": 1.3 ** place.clamp(max=60),
        "clusters": (place % 5) / 2,
        "blurred clusters": (place % 5) / 2 + 1e-5 * noise,
        "uniform": 2 * noise,
        "heavy tail": (3.1 * (noise - 0.5)).tan().abs(),
        "nearest far ahead": 50 * (place > 0).to(dtype),
        "farthest far behind": 50 * (place == n - 1).to(dtype),
        "alike": torch.ones(n, dtype=dtype),
    }
    for near in sorted({1, n // 3, n // 2, n - 1} - {0, n}):
        far = (place >= near).to(dtype)
        found[f"{near} near"] = 2 * far
        found[f"{near} near, blurred"] = 2 * far + 1e-3 * noise
        found[f"{near} near, far apart"] = 200 * far
    return found


def shares(n: int) -> list[float]:
    """Shares that are hard for n features: whole numbers of them, next to those, and extremes."""
    whole = sorted({1, n // 3, n // 2, n - 1} - {0, n})
    beside = [(k + by) / n for k in whole for by in (0.0, 1e-9, -1e-9, 1e-4, 0.5)]
    return [1e-3, 1e-2, 0.1, 0.3, 0.37, 0.5, 0.7, 0.9, 0.999, 1 - 1e-6, 1.0, *beside]
