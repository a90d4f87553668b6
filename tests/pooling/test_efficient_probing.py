"""Efficient probing against loops, and what its options accept."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, tokens
from pooling.naive_attention import disturb, softmax
from sumpool.pooling import EfficientProbingPool1d
from transport.generators import random_mask


def naive(pool: EfficientProbingPool1d, x: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The embedding and the weights of valid local features."""
    count = len(pool.queries)
    width = CHANNELS // count
    embedding = torch.zeros(CHANNELS, dtype=torch.float64)
    weights = torch.zeros(len(x), dtype=torch.float64)
    for m, query in enumerate(pool.queries):
        own = slice(m * width, (m + 1) * width)
        for j, share in enumerate(softmax([float(query @ it) / math.sqrt(CHANNELS) for it in x])):
            embedding[own] += share * (pool.value.weight @ x[j])[own]
            weights[j] += share / count
    return embedding, weights


@pytest.mark.parametrize("queries", [1, 4, 8])
def test_each_query_pools_its_block_of_channels(queries: int) -> None:
    x, mask = tokens(length=7, dtype=torch.float64), random_mask(3, 7)
    pool = EfficientProbingPool1d(CHANNELS, queries, dtype=torch.float64)
    disturb(pool)
    out = pool.pool(x, mask)
    for image in range(3):
        embedding, weights = naive(pool, list(x[image, mask[image]]))
        torch.testing.assert_close(out.embedding[image], embedding)
        torch.testing.assert_close(out.weights[image, mask[image]], weights)


def test_queries_of_zero_make_average_pooling() -> None:
    pool, x = EfficientProbingPool1d(CHANNELS, dtype=torch.float64), tokens(dtype=torch.float64)
    torch.nn.init.zeros_(pool.queries)
    torch.testing.assert_close(pool(x), pool.value(x.mean(1)))


def test_queries_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match=r"queries must divide channels=8, got 3"):
        EfficientProbingPool1d(CHANNELS, queries=3)
    assert [len(EfficientProbingPool1d(it).queries) for it in (1280, 24, 5)] == [32, 8, 1]
