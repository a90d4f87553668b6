"""Global second-order pooling against loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pooling.layers import CHANNELS, maps
from sumpool.pooling.rivals.gsop import GsopPool2d, averaging_matrix

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def affine(layer: nn.Linear, v: Tensor) -> Tensor:
    rows = [b + sum(w * a for w, a in zip(row, v, strict=True)) for row, b in rows_of(layer)]
    return torch.stack(rows)


def rows_of(layer: nn.Linear) -> list[tuple[Tensor, Tensor]]:
    return list(zip(layer.weight.detach(), layer.bias.detach(), strict=True))


def covariance(rows: Tensor) -> Tensor:
    """Of the rows of a matrix, entry by entry."""
    out = torch.zeros(len(rows), len(rows), **DOUBLE)
    for a, first in enumerate(rows):
        for b, second in enumerate(rows):
            out[a, b] = ((first - first.mean()) * (second - second.mean())).mean()
    return out


def row_wise(rows: nn.Module, matrix: Tensor) -> Tensor:
    weight, bias = rows.weight.detach(), rows.bias.detach()
    out = [
        bias[i, k] + (weight[i, k] * matrix[i]).sum()
        for i in range(len(matrix))
        for k in range(bias.shape[1])
    ]
    return torch.stack(out)


def resample(x: Tensor, height: int, width: int) -> Tensor:
    """Adaptive average pooling of (..., H, W), cell by cell."""
    from_h, from_w = x.shape[-2:]
    out = torch.zeros(*x.shape[:-2], height, width, **DOUBLE)
    for i in range(height):
        for j in range(width):
            rows = slice(i * from_h // height, math.ceil((i + 1) * from_h / height))
            columns = slice(j * from_w // width, math.ceil((j + 1) * from_w / width))
            out[..., i, j] = x[..., rows, columns].mean((-2, -1))
    return out


def naive(pool: GsopPool2d, x: Tensor) -> tuple[Tensor, Tensor]:
    """One map (C, H, W): its embedding and the shares of its positions."""
    channels, height, width = x.shape
    local = x.flatten(1).T
    g = torch.stack([affine(pool.channel_reduce, f.relu()).relu() for f in local])
    a = affine(pool.channel_expand, row_wise(pool.channel_rows, covariance(g.T))).sigmoid()
    g = torch.stack([affine(pool.spatial_reduce, f.relu()) for f in local])
    cells = resample(g.T.reshape(-1, height, width), pool.grid, pool.grid).flatten(1).T
    rows = row_wise(pool.spatial_rows, covariance(cells)).relu()
    s = affine(pool.spatial_expand, rows).sigmoid().reshape(pool.grid, pool.grid)
    s = resample(s, height, width)
    fused = torch.zeros(channels, **DOUBLE)
    for f, share in zip(local, s.flatten(), strict=True):
        fused += (a * f + share * f) / 2
    return fused / len(local), s / s.sum()


@pytest.mark.parametrize(("reduced", "grid"), [(None, 2), (3, 3)])
@pytest.mark.parametrize("size", [(5, 4), (1, 1), (1, 7)])
def test_the_formula(reduced: int | None, grid: int, size: tuple[int, int]) -> None:
    pool = GsopPool2d(CHANNELS, reduced, grid, **DOUBLE)
    x = maps(2, *size, **DOUBLE)
    out = pool.pool(x)
    for it in range(2):
        embedding, weights = naive(pool, x[it])
        torch.testing.assert_close(out.embedding[it], embedding, rtol=0, atol=1e-12)
        torch.testing.assert_close(out.weights[it], weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (8, 8), (3, 14), (16, 9)])
def test_the_matrices_are_those_of_adaptive_pooling(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size, **DOUBLE)
    rows, columns = (averaging_matrix(8, n, dtype=torch.float64) for n in size)
    torch.testing.assert_close(rows @ x @ columns.T, F.adaptive_avg_pool2d(x, 8))
    y = torch.randn(2, 3, 8, 8, **DOUBLE)
    rows, columns = (averaging_matrix(n, 8, dtype=torch.float64) for n in size)
    torch.testing.assert_close(rows @ y @ columns.T, F.adaptive_avg_pool2d(y, size))


def test_attention_of_one_half_is_half_of_average_pooling() -> None:
    pool = GsopPool2d(CHANNELS)
    for parameter in pool.parameters():
        nn.init.zeros_(parameter)
    torch.testing.assert_close(pool(maps()), maps().mean((2, 3)) / 2)
    torch.testing.assert_close(pool.pool(maps()).weights, torch.full((3, 5, 6), 1 / 30))


def test_covariances_are_of_128_channels_or_of_all_where_there_are_fewer() -> None:
    assert GsopPool2d(512, grid=2).channel_reduce.out_features == 128
    assert GsopPool2d(64, grid=2).channel_reduce.out_features == 64
    assert GsopPool2d(64, 80, grid=2).spatial_reduce.out_features == 80


def test_weights_sum_to_one_where_attention_vanishes() -> None:
    pool = GsopPool2d(CHANNELS)
    nn.init.constant_(pool.spatial_expand.bias, -500.0)
    torch.testing.assert_close(pool.pool(maps()).weights.sum((1, 2)), torch.ones(3))
