"""CBAM pooling against loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps
from sumpool.pooling.rivals.cbam import CbamPool2d

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def perceptron(pool: CbamPool2d, v: list[float]) -> list[float]:
    def layer(linear: torch.nn.Linear, v: list[float]) -> list[float]:
        rows, shifts = linear.weight.tolist(), linear.bias.tolist()
        return [
            b + sum(w * a for w, a in zip(row, v, strict=True))
            for row, b in zip(rows, shifts, strict=True)
        ]

    return layer(pool.expand, [max(0.0, h) for h in layer(pool.squeeze, v)])


def naive(pool: CbamPool2d, x: Tensor) -> tuple[Tensor, Tensor]:
    """One map (C, H, W): its embedding and the shares of its positions."""
    channels, height, width = x.shape
    values = x.tolist()
    flat = [[v for row in values[c] for v in row] for c in range(channels)]
    mean = perceptron(pool, [sum(row) / len(row) for row in flat])
    top = perceptron(pool, [max(row) for row in flat])
    c = [sigmoid(a + b) for a, b in zip(mean, top, strict=True)]
    kernel, bias = pool.spatial.weight.tolist()[0], pool.spatial.bias.tolist()[0]
    half = len(kernel[0]) // 2

    def column(i: int, j: int) -> list[float]:
        return [c[o] * values[o][i][j] for o in range(channels)]

    s = torch.zeros(height, width, **DOUBLE)
    embedding = torch.zeros(channels, **DOUBLE)
    for i in range(height):
        for j in range(width):
            z = bias
            for di in range(-half, half + 1):
                for dj in range(-half, half + 1):
                    if 0 <= i + di < height and 0 <= j + dj < width:
                        g = column(i + di, j + dj)
                        z += kernel[0][di + half][dj + half] * sum(g) / channels
                        z += kernel[1][di + half][dj + half] * max(g)
            s[i, j] = sigmoid(z)
            embedding += s[i, j] * torch.tensor(column(i, j), **DOUBLE) / (height * width)
    return embedding, s / s.sum()


@pytest.mark.parametrize(("reduction", "kernel_size"), [(16, 7), (2, 3)])
@pytest.mark.parametrize("size", [(3, 4), (1, 1)])
def test_the_formula(reduction: int, kernel_size: int, size: tuple[int, int]) -> None:
    pool = CbamPool2d(CHANNELS, reduction, kernel_size, **DOUBLE)
    x = maps(2, *size, **DOUBLE)
    out = pool.pool(x)
    for it in range(2):
        embedding, weights = naive(pool, x[it])
        torch.testing.assert_close(out.embedding[it], embedding, rtol=0, atol=1e-12)
        torch.testing.assert_close(out.weights[it], weights, rtol=0, atol=1e-12)


def test_attention_of_one_half_is_a_quarter_of_average_pooling() -> None:
    pool = CbamPool2d(CHANNELS)
    for parameter in pool.parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(pool(maps()), maps().mean((2, 3)) / 4)
    torch.testing.assert_close(pool.pool(maps()).weights, torch.full((3, 5, 6), 1 / 30))


def test_the_hidden_layer_has_at_least_one_unit() -> None:
    assert CbamPool2d(8).squeeze.out_features == 1
    assert CbamPool2d(64).squeeze.out_features == 4


def test_weights_sum_to_one_where_attention_vanishes() -> None:
    pool = CbamPool2d(CHANNELS)
    torch.nn.init.constant_(pool.spatial.bias, -500.0)
    weights = pool.pool(maps()).weights
    torch.testing.assert_close(weights.sum((1, 2)), torch.ones(3))
