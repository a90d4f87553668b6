"""The sum of average and maximum pooling."""

from __future__ import annotations

import math

import torch

from pooling.layers import maps, tokens
from sumpool.pooling import (
    AverageMaxPool1d,
    AverageMaxPool2d,
    GlobalAveragePool1d,
    GlobalAveragePool2d,
    GlobalMaxPool1d,
    GlobalMaxPool2d,
)
from transport.generators import random_mask


def test_it_equals_the_loops() -> None:
    x, mask = tokens(dtype=torch.float64), random_mask(3, 30)
    got = AverageMaxPool1d()(x, mask)
    for image in range(3):
        for channel in range(x.shape[-1]):
            values = [float(x[image, j, channel]) for j in range(30) if mask[image, j]]
            expected = sum(values) / len(values) + max(values)
            assert math.isclose(float(got[image, channel]), expected, rel_tol=1e-12)


def test_it_is_average_plus_maximum_pooling() -> None:
    x, mask = maps(), random_mask(3, 5, 6)
    for it in (None, mask):
        out = AverageMaxPool2d().pool(x, it)
        average, largest = GlobalAveragePool2d().pool(x, it), GlobalMaxPool2d().pool(x, it)
        torch.testing.assert_close(out.embedding, average.embedding + largest.embedding)
        torch.testing.assert_close(out.weights, (average.weights + largest.weights) / 2)


def test_one_position_is_given_twice() -> None:
    x = maps(height=1, width=1)
    assert torch.equal(AverageMaxPool2d()(x), 2 * x[..., 0, 0])


def test_the_average_of_half_precision_is_formed_in_float32() -> None:
    x = (100 + tokens(length=500)).half()
    expected = GlobalAveragePool1d()(x.double()) + GlobalMaxPool1d()(x.double())
    got = AverageMaxPool1d()(x)
    assert got.dtype == torch.half
    assert torch.equal(got, expected.half())
