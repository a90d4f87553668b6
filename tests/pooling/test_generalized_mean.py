"""Generalized-mean pooling: between average and maximum, in logarithms."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling import GeneralizedMeanPool1d, GeneralizedMeanPool2d
from sumpool.pooling.generalized_mean import generalized_mean, generalized_mean_shares
from transport.generators import random_mask


def naive(x: Tensor, p: float, mask: Tensor, floor: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Means (B, C) and shares (B, n) by loops over powers."""
    means = torch.zeros(len(x), x.shape[-1], dtype=x.dtype)
    shares = torch.zeros(mask.shape, dtype=x.dtype)
    for image in range(len(x)):
        valid = [j for j in range(x.shape[1]) if mask[image, j]]
        for channel in range(x.shape[-1]):
            powers = {j: max(float(x[image, j, channel]), floor) ** p for j in valid}
            total = sum(powers.values())
            means[image, channel] = (total / len(valid)) ** (1 / p)
            for j in valid:
                shares[image, j] += powers[j] / total / x.shape[-1]
    return means, shares


@pytest.mark.parametrize("p", [0.5, 1.0, 3.0, 6.5])
@pytest.mark.parametrize("masked", [False, True])
def test_it_equals_the_loops(p: float, masked: bool) -> None:
    x = tokens(dtype=torch.float64)
    mask = random_mask(3, 30) if masked else torch.ones(3, 30, dtype=torch.bool)
    means, shares = naive(x, p, mask)
    layer = GeneralizedMeanPool1d(p, dtype=torch.float64)
    got = layer.pool(x, mask if masked else None)
    torch.testing.assert_close(got.embedding, means, rtol=1e-12, atol=0)
    torch.testing.assert_close(got.weights, shares, rtol=1e-12, atol=1e-14)
    single = generalized_mean(x.float(), p, mask if masked else None)
    torch.testing.assert_close(single, means.float(), rtol=1e-5, atol=0)


def test_p_one_is_average_pooling_of_positive_features() -> None:
    x = maps().abs() + 0.01
    torch.testing.assert_close(GeneralizedMeanPool2d(p=1.0)(x), x.mean((2, 3)))


def test_large_p_tends_to_maximum_pooling() -> None:
    x, mask = tokens().abs() + 0.01, random_mask(3, 30)
    valid = x.masked_fill(~mask.unsqueeze(-1), 0).amax(1)
    errors = [float((generalized_mean(x, p, mask) / valid - 1).abs().max()) for p in (9, 99, 9999)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3


def test_it_lies_between_mean_and_maximum_and_grows_with_p() -> None:
    x = tokens().abs() + 0.01
    means = [x.mean(1), *(generalized_mean(x, p) for p in (2.0, 3.0, 8.0)), x.amax(1)]
    for low, high in itertools.pairwise(means):
        assert (low <= high * (1 + 1e-6)).all()


def test_it_scales_with_the_features() -> None:
    x = tokens().abs() + 0.1
    torch.testing.assert_close(generalized_mean(x * 1e4, 3.0), 1e4 * generalized_mean(x, 3.0))


@pytest.mark.parametrize("p", [1e-2, 3.0, 1e5])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_float32_is_finite_for_any_p_and_any_magnitude(p: float, scale: float) -> None:
    x = (scale * tokens()).requires_grad_()
    exponent = torch.tensor(p, requires_grad=True)
    out = generalized_mean(x, exponent, random_mask(3, 30))
    for it in (out, *torch.autograd.grad(out.sum(), (x, exponent))):
        assert it.isfinite().all()
    if scale > 1e-3:
        expected = generalized_mean(x.double(), exponent.double(), random_mask(3, 30))
        torch.testing.assert_close(out, expected.float(), rtol=1e-3 if p < 1 else 2e-5, atol=0)


def test_values_below_the_floor_count_as_the_floor() -> None:
    x = torch.tensor([[-3.0], [0.0], [2.0]], requires_grad=True)
    out = generalized_mean(x, 1.0, floor=0.5)
    out.sum().backward()
    torch.testing.assert_close(out, torch.tensor([1.0]))
    torch.testing.assert_close(x.grad[:, 0], torch.tensor([0.0, 0.0, 1 / 3]))


def test_every_channel_may_have_its_own_p() -> None:
    x, p = tokens(dtype=torch.float64), torch.arange(1.0, 1 + CHANNELS, dtype=torch.float64)
    got, shares = generalized_mean(x, p), generalized_mean_shares(x, p)
    each = [naive(x[..., [c]], float(p[c]), torch.ones(3, 30, dtype=bool)) for c in range(CHANNELS)]
    torch.testing.assert_close(got, torch.cat([it[0] for it in each], 1))
    torch.testing.assert_close(shares, sum(it[1] for it in each) / CHANNELS)


def test_the_exponent_is_learned_or_held() -> None:
    layer = GeneralizedMeanPool2d()
    layer(maps()).sum().backward()
    assert layer.p.grad is not None
    assert layer.p.item() == 3
    held = GeneralizedMeanPool2d(p=2.0, learn_p=False)
    assert not held.p.requires_grad
    assert held.p.item() == held.state_dict()["p"].item() == 2
    assert "p=2.0, floor" in repr(held)
    assert "p=3.0 (learned)" in repr(layer)


def test_it_is_built_on_meta_and_filled_later() -> None:
    layer = GeneralizedMeanPool2d(p=4.0, device="meta")
    layer.to_empty(device="cpu").reset_parameters()
    assert layer.p.item() == 4


def test_a_learned_exponent_that_crosses_zero_still_gives_numbers() -> None:
    layer = GeneralizedMeanPool2d()
    features = torch.rand(2, 4, 3, 3)
    for value in (0.0, -2.0):
        with torch.no_grad():
            layer.p.fill_(value)
        pooled = layer(features)
        low, high = features.flatten(2).aminmax(dim=2)
        assert bool(((pooled >= low) & (pooled <= high)).all())
