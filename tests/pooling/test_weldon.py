"""WELDON pooling: the mean of the highest plus the mean of the lowest values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pooling.layers import maps, tokens
from sumpool.pooling import GlobalAveragePool1d, GlobalMaxPool2d, WeldonPool1d, WeldonPool2d
from sumpool.pooling.rivals.weldon import mean_of_highest
from transport.generators import random_mask


def naive(x: Tensor, k: int, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Pooled values (B, C) and shares (B, n) by loops over sorted lists."""
    pooled = torch.zeros(len(x), x.shape[-1], dtype=x.dtype)
    shares = torch.zeros(mask.shape, dtype=x.dtype)
    for image in range(len(x)):
        for channel in range(x.shape[-1]):
            valid = [j for j in range(x.shape[1]) if mask[image, j]]
            valid.sort(key=lambda j: float(x[image, j, channel]))
            for chosen in (valid[:k], valid[-k:]):
                for j in chosen:
                    pooled[image, channel] += x[image, j, channel] / len(chosen)
                    shares[image, j] += 1 / len(chosen) / 2 / x.shape[-1]
    return pooled, shares


@pytest.mark.parametrize("k", [1, 3, 20, 40])
@pytest.mark.parametrize("masked", [False, True])
def test_it_equals_the_loops(k: int, masked: bool) -> None:
    x = tokens(dtype=torch.float64)
    mask = random_mask(3, 30) if masked else torch.ones(3, 30, dtype=torch.bool)
    pooled, shares = naive(x, k, mask)
    got = WeldonPool1d(k).pool(x, mask if masked else None)
    torch.testing.assert_close(got.embedding, pooled, rtol=0, atol=1e-12)
    torch.testing.assert_close(got.weights, shares, rtol=0, atol=1e-14)


def test_images_with_fewer_valid_positions_than_k_use_all_of_them() -> None:
    x = tokens(length=6, dtype=torch.float64)
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[0, 2] = mask[1, [0, 5]] = True
    mask[2] = True
    pooled, shares = naive(x, 3, mask)
    got = WeldonPool1d().pool(x, mask)
    torch.testing.assert_close(got.embedding, pooled, rtol=0, atol=1e-14)
    torch.testing.assert_close(got.weights, shares, rtol=0, atol=1e-14)


@pytest.mark.parametrize("k", [30, 31, 100])
def test_k_of_all_positions_is_twice_the_mean(k: int) -> None:
    x, mask = tokens(), random_mask(3, 30)
    for it in (None, mask):
        out, average = WeldonPool1d(k).pool(x, it), GlobalAveragePool1d().pool(x, it)
        torch.testing.assert_close(out.embedding, 2 * average.embedding)
        torch.testing.assert_close(out.weights, average.weights)


def test_k_one_is_maximum_plus_minimum() -> None:
    x = maps()
    expected = GlobalMaxPool2d()(x) - GlobalMaxPool2d()(-x)
    torch.testing.assert_close(WeldonPool2d(k=1)(x), expected)


def test_the_sign_of_the_features_is_kept() -> None:
    torch.testing.assert_close(WeldonPool2d()(-maps()), -WeldonPool2d()(maps()))


def test_gradients_go_to_the_selected_values() -> None:
    x = torch.tensor([[[4.0], [1.0], [3.0], [2.0], [5.0]]], requires_grad=True)
    WeldonPool1d(k=2)(x).sum().backward()
    assert torch.equal(x.grad[0, :, 0], torch.tensor([0.5, 0.5, 0.0, 0.5, 0.5]))


def test_equal_values_are_selected_k_times() -> None:
    out = mean_of_highest(torch.zeros(2, 7, 4), 3)
    assert not out.mean.any()
    torch.testing.assert_close(out.weights.sum(-1), torch.ones(2))
