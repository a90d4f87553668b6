"""Maximum pooling, and which position holds a maximum."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling import GlobalMaxPool1d, GlobalMaxPool2d
from transport.generators import random_mask


def naive(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima (B, C) and shares (B, n) by loops."""
    values = torch.full((len(x), x.shape[-1]), -math.inf, dtype=x.dtype)
    shares = torch.zeros(mask.shape, dtype=x.dtype)
    for image in range(len(x)):
        for channel in range(x.shape[-1]):
            valid = [j for j in range(x.shape[1]) if mask[image, j]]
            best = max(float(x[image, j, channel]) for j in valid)
            holders = [j for j in valid if float(x[image, j, channel]) == best]
            values[image, channel] = best
            for j in holders:
                shares[image, j] += 1 / len(holders) / x.shape[-1]
    return values, shares


def test_maximum_pooling_equals_the_loops() -> None:
    x = tokens(dtype=torch.float64)
    everywhere = torch.ones(3, 30, dtype=torch.bool)
    for mask in (None, random_mask(3, 30)):
        out = GlobalMaxPool1d().pool(x, mask)
        values, shares = naive(x, everywhere if mask is None else mask)
        assert torch.equal(out.embedding, values)
        torch.testing.assert_close(out.weights, shares, rtol=0, atol=1e-14)


def test_maximum_pooling_of_maps_is_that_of_torch() -> None:
    assert torch.equal(GlobalMaxPool2d()(maps()), maps().amax((2, 3)))


def test_positions_that_share_the_maximum_share_weight_and_gradient() -> None:
    x = torch.tensor([[[2.0], [0.0], [2.0]]], requires_grad=True)
    out = GlobalMaxPool1d().pool(x)
    out.embedding.sum().backward()
    half = torch.tensor([0.5, 0.0, 0.5])
    assert torch.equal(out.weights[0], half)
    assert torch.equal(x.grad[0, :, 0], half)


def test_an_empty_map_has_equal_weights() -> None:
    out = GlobalMaxPool2d().pool(torch.zeros(2, CHANNELS, 2, 3))
    torch.testing.assert_close(out.weights, torch.full((2, 2, 3), 1 / 6))


def test_all_negative_values_are_pooled_too() -> None:
    x, mask = -1 - tokens().abs(), random_mask(3, 30)
    assert (GlobalMaxPool1d()(x, mask) < -1).all()


def test_half_precision_is_exact() -> None:
    x = maps().half()
    out = GlobalMaxPool2d().pool(x)
    assert torch.equal(out.embedding, x.amax((2, 3)))
    assert out.weights.dtype == torch.float32
