"""SALAD against loops, and the masses of its plan."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pooling.layers import CHANNELS, tokens
from pooling.naive_attention import disturb
from sumpool.pooling import SaladPool1d
from sumpool.pooling.rivals.salad import dustbin_transport
from transport.generators import random_mask, source

DOUBLE = torch.float64


def layer(clusters: int = 3) -> SaladPool1d:
    pool = SaladPool1d(CHANNELS, clusters, 2, hidden=5, dtype=DOUBLE)
    disturb(pool)
    return pool


def perceptron(first: nn.Linear, second: nn.Linear, v: Tensor) -> Tensor:
    return second(first(v).clamp(min=0))


def naive(pool: SaladPool1d, x: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The embedding and the weights of valid local features."""
    n, m = len(x), pool.score_layer.out_features
    scores = [perceptron(pool.score_hidden, pool.score_layer, it).tolist() for it in x]
    kernel = [[math.exp(it) for it in (*row, float(pool.dustbin))] for row in scores]
    masses = [min(1.0, n / m)] * m + [max(0.0, float(n - m))]
    rows = [1.0] * n
    for _ in range(3):
        columns = [masses[k] / sum(kernel[j][k] * rows[j] for j in range(n)) for k in range(m + 1)]
        rows = [1 / sum(kernel[j][k] * columns[k] for k in range(m + 1)) for j in range(n)]
    values = [perceptron(pool.feature_hidden, pool.feature_layer, it) for it in x]
    parts, weights = [], torch.zeros(n, dtype=DOUBLE)
    for k in range(m):
        shares = [kernel[j][k] * columns[k] * rows[j] for j in range(n)]
        part = sum(share * it for share, it in zip(shares, values, strict=True))
        parts.append(part / part.norm())
        weights += torch.tensor(shares, dtype=DOUBLE)
    return torch.cat(parts) / math.sqrt(m), weights / weights.sum()


@pytest.mark.parametrize("clusters", [1, 3, 5, 9])
def test_the_embedding_sums_features_per_cluster(clusters: int) -> None:
    x, mask, pool = tokens(length=7, dtype=DOUBLE), random_mask(3, 7), layer(clusters)
    out = pool.pool(x, mask)
    for image in range(3):
        embedding, weights = naive(pool, list(x[image, mask[image]]))
        torch.testing.assert_close(out.embedding[image], embedding)
        torch.testing.assert_close(out.weights[image, mask[image]], weights)


def test_clusters_take_one_unit_of_mass_each_and_the_dustbin_the_rest() -> None:
    scores = torch.randn(2, 10, 4, generator=source(0), dtype=DOUBLE)
    plan = dustbin_transport(scores, torch.tensor(0.5, dtype=DOUBLE), 200).exp()
    torch.testing.assert_close(plan.sum(1), torch.ones(2, 4, dtype=DOUBLE))
    assert (plan.sum(2) < 1).all()
    torch.testing.assert_close(plan.sum((1, 2)), torch.full((2,), 4.0, dtype=DOUBLE))


@pytest.mark.parametrize("n", [2, 4])
def test_without_more_features_than_clusters_nothing_is_left(n: int) -> None:
    scores = torch.randn(2, n, 4, generator=source(0), dtype=DOUBLE)
    plan = dustbin_transport(scores, torch.tensor(3.0, dtype=DOUBLE), 200).exp()
    torch.testing.assert_close(plan.sum(2), torch.ones(2, n, dtype=DOUBLE))
    torch.testing.assert_close(plan.sum(1), torch.full((2, 4), n / 4, dtype=DOUBLE))


def test_the_dustbin_learns_and_starts_at_one() -> None:
    pool = SaladPool1d(CHANNELS, 3, 2)
    assert pool.dustbin == 1
    pool(tokens())[:, 0].sum().backward()
    assert pool.dustbin.grad != 0


def test_arguments_are_named() -> None:
    for option in ("clusters", "cluster_dim", "hidden", "iterations"):
        with pytest.raises(ValueError, match=rf"{option} must be at least 1, got 0"):
            SaladPool1d(CHANNELS, **{option: 0})
