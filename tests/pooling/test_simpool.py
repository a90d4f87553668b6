"""SimPool against loops, and its limits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, tokens
from pooling.naive_attention import disturb, normalized, softmax
from sumpool.pooling import SimPool1d
from transport.generators import random_mask


def layer(gamma: float = 2.0) -> SimPool1d:
    pool = SimPool1d(CHANNELS, gamma, dtype=torch.float64)
    disturb(pool)
    return pool


def naive(pool: SimPool1d, x: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The embedding and the weights of valid local features."""
    query = pool.query.weight @ (sum(x) / len(x))
    values = [normalized(pool.norm, it) for it in x]
    shares = softmax([float((pool.key.weight @ it) @ query) / math.sqrt(CHANNELS) for it in values])
    least = min(float(it.min()) for it in values)
    powers = [(it - least + 1e-6) ** pool.gamma for it in values]
    total = sum(share * it for share, it in zip(shares, powers, strict=True))
    return total ** (1 / pool.gamma), torch.tensor(shares, dtype=torch.float64)


@pytest.mark.parametrize("gamma", [1.0, 1.25, 2.0])
def test_the_embedding_is_a_power_mean_under_the_attention_of_the_mean(gamma: float) -> None:
    x, mask, pool = tokens(length=7, dtype=torch.float64), random_mask(3, 7), layer(gamma)
    out = pool.pool(x, mask)
    for image in range(3):
        embedding, weights = naive(pool, list(x[image, mask[image]]))
        torch.testing.assert_close(out.embedding[image], embedding)
        torch.testing.assert_close(out.weights[image, mask[image]], weights)


def test_without_attention_the_weights_are_equal() -> None:
    pool = layer()
    torch.nn.init.zeros_(pool.query.weight)
    weights = pool.pool(tokens(length=5, dtype=torch.float64)).weights
    torch.testing.assert_close(weights, torch.full((3, 5), 0.2, dtype=torch.float64))


def test_gamma_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"gamma must be a positive finite number, got 0"):
        SimPool1d(CHANNELS, gamma=0)
