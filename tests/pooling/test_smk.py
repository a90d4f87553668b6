"""T-SMK pooling against loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pooling.layers import CHANNELS, maps
from sumpool.pooling.rivals.smk import SmkPool2d

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def naive(pool: SmkPool2d, x: Tensor) -> tuple[Tensor, Tensor]:
    """One map (C, H, W): its embedding and the shares of its positions."""
    _, height, width = x.shape
    half = pool.kernel_size // 2
    total = torch.zeros(pool.embedding_size, **DOUBLE)
    norms = torch.zeros(height, width, **DOUBLE)
    for i in range(height):
        for j in range(width):
            norms[i, j] = (x[:, i, j].square().sum() + 1e-10).sqrt()
            near = [
                x[:, a, b]
                for a in range(max(0, i - half), min(height, i + half + 1))
                for b in range(max(0, j - half), min(width, j + half + 1))
            ]
            o = pool.reduce.weight.detach() @ (sum(near) / len(near)) + pool.reduce.bias.detach()
            total += norms[i, j] * (o / o.norm() if pool.normalize_local else o)
    return total, norms / norms.sum()


@pytest.mark.parametrize("options", [{}, {"normalize_local": True}, {"kernel_size": 5}])
@pytest.mark.parametrize("size", [(5, 4), (1, 1), (1, 7)])
def test_the_formula(options: dict[str, Any], size: tuple[int, int]) -> None:
    pool = SmkPool2d(CHANNELS, 6, **options, **DOUBLE)
    x = maps(2, *size, **DOUBLE)
    out = pool.pool(x)
    for it in range(2):
        embedding, weights = naive(pool, x[it])
        torch.testing.assert_close(out.embedding[it], embedding, rtol=0, atol=1e-12)
        torch.testing.assert_close(out.weights[it], weights, rtol=0, atol=1e-12)


def test_without_neighbors_and_reduction_it_is_the_sum_weighted_by_norms() -> None:
    pool = SmkPool2d(CHANNELS, CHANNELS, kernel_size=1)
    nn.init.eye_(pool.reduce.weight)
    nn.init.zeros_(pool.reduce.bias)
    expected = (maps() * maps().norm(dim=1, keepdim=True)).sum((2, 3))
    torch.testing.assert_close(pool(maps()), expected)


def test_local_normalization_bounds_the_part_of_a_position_by_its_norm() -> None:
    pool, x = SmkPool2d(CHANNELS, 6, normalize_local=True), maps(3, 1, 1)
    torch.testing.assert_close(pool(x).norm(dim=-1), x.norm(dim=1).flatten())


def test_a_map_of_zeros_has_uniform_weights_and_a_gradient() -> None:
    x = torch.zeros(1, CHANNELS, 2, 3, requires_grad=True)
    out = SmkPool2d(CHANNELS, 6, normalize_local=True).pool(x)
    torch.testing.assert_close(out.weights, torch.full((1, 2, 3), 1 / 6))
    out.embedding.sum().backward()
    assert x.grad.isfinite().all()
