"""CroW pooling: positions weighed by activation, channels by how rarely they are active."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling import CrowPool1d, CrowPool2d
from sumpool.pooling.rivals.crow import channel_weights, spatial_weights
from transport.generators import random_mask


def naive(features: Tensor, eps: float) -> tuple[list[float], list[float]]:
    """The pooled vector and the shares of positions of one image (n, C), by loops."""
    rows = [[max(float(value), 0.0) for value in row] for row in features]
    n, channels = len(rows), len(rows[0])
    activation = [sum(row) for row in rows]
    norm = math.sqrt(sum(value**2 for value in activation))
    spatial = [math.sqrt(value / norm) for value in activation]
    rate = [sum(row[c] > 0 for row in rows) / n for c in range(channels)]
    rarity = [math.log((channels * eps + sum(rate)) / (eps + rate[c])) for c in range(channels)]
    pooled = [rarity[c] * sum(spatial[j] * rows[j][c] for j in range(n)) for c in range(channels)]
    return pooled, [value / sum(spatial) for value in spatial]


@pytest.mark.parametrize("eps", [1e-6, 0.1])
@pytest.mark.parametrize("masked", [False, True])
def test_it_equals_the_loops(eps: float, masked: bool) -> None:
    x = tokens(dtype=torch.float64)
    x[:, :, 0] = -1  # a channel that is never active
    x[:, 3] = 0  # a position without activation
    mask = random_mask(3, 30) if masked else torch.ones(3, 30, dtype=torch.bool)
    got = CrowPool1d(eps).pool(x, mask if masked else None)
    for image in range(3):
        pooled, shares = naive(x[image, mask[image]], eps)
        torch.testing.assert_close(got.embedding[image], torch.tensor(pooled).double())
        torch.testing.assert_close(got.weights[image, mask[image]], torch.tensor(shares).double())


def test_float32_equals_float64() -> None:
    torch.testing.assert_close(CrowPool2d()(maps()), CrowPool2d()(maps().double()).float())


def test_what_is_negative_counts_as_zero() -> None:
    assert torch.equal(CrowPool2d()(maps()), CrowPool2d()(maps().relu()))


def test_rare_channels_weigh_more() -> None:
    x = torch.ones(1, 4, 3)
    x[0, 1:, 1] = 0
    x[0, :, 2] = 0
    often, rarely, never = channel_weights(x)[0].tolist()
    assert often < rarely < never < math.inf


def test_a_single_channel_has_weight_zero() -> None:
    assert not CrowPool1d()(torch.rand(2, 5, 1)).any()


def test_it_scales_with_the_features() -> None:
    x = maps()
    torch.testing.assert_close(CrowPool2d()(x * 1e4), 1e4 * CrowPool2d()(x))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1e4, 1e30])
def test_any_magnitude_gives_finite_weights_and_gradients(scale: float) -> None:
    x = (scale * maps()).requires_grad_()
    out = CrowPool2d().pool(x)
    out.embedding.sum().backward()
    assert out.embedding.isfinite().all()
    assert x.grad.isfinite().all()
    torch.testing.assert_close(out.weights.sum((1, 2)), torch.ones(3))


def test_an_empty_map_has_equal_weights_and_embedding_zero() -> None:
    mask = torch.tensor([[True, True, False, True]])
    out = CrowPool1d().pool(torch.zeros(1, 4, CHANNELS), mask)
    assert not out.embedding.any()
    torch.testing.assert_close(out.weights, mask / 3)


def test_positions_without_activation_have_gradient_zero() -> None:
    x = tokens().relu()
    x[:, 2] = 0
    x.requires_grad_()
    spatial = spatial_weights(x)
    assert not spatial[:, 2].any()
    CrowPool1d()(x).sum().backward()
    assert not x.grad[:, 2].any()
    assert x.grad.isfinite().all()
