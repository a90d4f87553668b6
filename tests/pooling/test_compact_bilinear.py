"""Compact bilinear pooling against its matrices, and its special cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, tokens
from sumpool.pooling.rivals.compact_bilinear import (
    CompactBilinearPool1d,
    rank_k_bilinear,
    signed_sqrt,
)
from transport.generators import random_mask

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def layer(**options: Any) -> CompactBilinearPool1d:
    return CompactBilinearPool1d(CHANNELS, 6, **{**DOUBLE, **options})


def naive(u: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Valid features (n, C), by the matrices M_o = Σ_r u vᵀ."""
    out = torch.zeros(len(u), **DOUBLE)
    for o in range(len(u)):
        matrix = sum(torch.outer(u[o, r], v[o, r]) for r in range(u.shape[1]))
        for f in x:
            out[o] += f @ matrix @ f / len(x)
    return out


@pytest.mark.parametrize("rank", [1, 3, 8])
@pytest.mark.parametrize("masked", [False, True])
def test_outputs_are_mean_quadratic_forms_of_rank_k(rank: int, masked: bool) -> None:
    pool, x = layer(rank=rank, signed_sqrt=False), tokens(length=7, **DOUBLE)
    mask = random_mask(3, 7) if masked else torch.ones(3, 7, dtype=torch.bool)
    out = pool.pool(x, mask if masked else None)
    for it in range(3):
        expected = naive(pool.u.detach(), pool.v.detach(), x[it, mask[it]])
        torch.testing.assert_close(out.embedding[it], expected, rtol=0, atol=1e-12)
    assert out.weights is None


def test_rank_one_is_the_hadamard_form() -> None:
    pool, x = layer(rank=1, signed_sqrt=False), tokens(**DOUBLE)
    expected = ((x @ pool.u[:, 0].T) * (x @ pool.v[:, 0].T)).mean(1)
    torch.testing.assert_close(pool(x), expected)


def test_full_rank_holds_any_linear_function_of_bilinear_pooling() -> None:
    x, matrices = tokens(**DOUBLE), torch.randn(5, CHANNELS, CHANNELS, **DOUBLE)
    identity = torch.eye(CHANNELS, **DOUBLE).expand(5, -1, -1)
    second_moment = torch.einsum("bni,bnj->bij", x, x) / x.shape[1]
    expected = torch.einsum("bij,oij->bo", second_moment, matrices)
    torch.testing.assert_close(rank_k_bilinear(x, identity, matrices), expected)


def test_the_signed_root_and_the_norm_follow_where_asked_for() -> None:
    plain, x = layer(signed_sqrt=False), tokens(**DOUBLE)
    for options in ({}, {"l2": True}, {"signed_sqrt": False, "l2": True}):
        pool = layer(**options)
        pool.load_state_dict(plain.state_dict())
        expected = plain(x)
        if options.get("signed_sqrt", True):
            expected = expected.sign() * ((expected.abs() + 1e-4).sqrt() - 1e-2)
        if options.get("l2"):
            expected = expected / expected.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(pool(x), expected)


def test_the_signed_root_has_a_finite_slope_at_zero() -> None:
    x = torch.zeros(3, requires_grad=True)
    signed_sqrt(x, 1e-4).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 50.0))
    torch.testing.assert_close(signed_sqrt(-x), -signed_sqrt(x))


def test_the_signed_root_tends_to_the_root() -> None:
    x = torch.linspace(-3, 3, 13, **DOUBLE)
    expected = x.sign() * x.abs().sqrt()
    torch.testing.assert_close(signed_sqrt(x, 1e-16), expected, rtol=0, atol=2e-8)


@pytest.mark.parametrize(("channels", "rank"), [(16, 1), (16, 16), (256, 8)])
def test_the_scale_at_the_start_depends_neither_on_rank_nor_on_channels(
    channels: int, rank: int
) -> None:
    pool = CompactBilinearPool1d(channels, 256, rank=rank, signed_sqrt=False)
    assert 0.8 < pool(torch.randn(64, 1, channels)).std().item() < 1.25
