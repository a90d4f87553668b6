"""DeLF pooling against loops, and its weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, tokens
from sumpool.pooling.rivals.delf import DelfPool1d, score_shares
from transport.generators import random_mask

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def layer(**options: Any) -> DelfPool1d:
    return DelfPool1d(CHANNELS, 12, **{**DOUBLE, **options})


def naive_score(pool: DelfPool1d, f: Tensor) -> float:
    w1, b1 = pool.hidden_layer.weight.tolist(), pool.hidden_layer.bias.tolist()
    w2, b2 = pool.score_layer.weight.tolist()[0], pool.score_layer.bias.tolist()[0]
    z = b2
    for row, shift, out in zip(w1, b1, w2, strict=True):
        z += out * max(0.0, shift + sum(a * b for a, b in zip(row, f.tolist(), strict=True)))
    return math.log1p(math.exp(z))


def naive(pool: DelfPool1d, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    embedding, weights = (
        torch.zeros(len(x), x.shape[2], **DOUBLE),
        torch.zeros(x.shape[:2], **DOUBLE),
    )
    for it in range(len(x)):
        for j in range(x.shape[1]):
            if mask[it, j]:
                weights[it, j] = naive_score(pool, x[it, j])
                embedding[it] += weights[it, j] * x[it, j]
        weights[it] /= weights[it].sum()
    return embedding, weights


@pytest.mark.parametrize("masked", [False, True])
def test_the_embedding_is_the_sum_weighted_by_scores(masked: bool) -> None:
    x, pool = tokens(length=7, **DOUBLE), layer()
    mask = random_mask(3, 7) if masked else torch.ones(3, 7, dtype=torch.bool)
    embedding, weights = naive(pool, x, mask)
    out = pool.pool(x, mask if masked else None)
    torch.testing.assert_close(out.embedding, embedding, rtol=0, atol=1e-12)
    torch.testing.assert_close(out.weights, weights, rtol=0, atol=1e-12)


def test_equal_features_have_equal_weights() -> None:
    weights = layer().pool(torch.ones(2, 5, CHANNELS, **DOUBLE)).weights
    torch.testing.assert_close(weights, torch.full((2, 5), 0.2, **DOUBLE))


def test_the_sum_grows_with_the_number_of_features() -> None:
    x, pool = tokens(**DOUBLE), layer()
    torch.testing.assert_close(pool(torch.cat([x, x], 1)), 2 * pool(x))


@pytest.mark.parametrize("shift", [-1e4, -200.0, -40.0, 0.0, 200.0])
def test_shares_sum_to_one_for_any_logits(shift: float) -> None:
    logits = (torch.randn(4, 9) + shift).requires_grad_()
    shares = score_shares(logits)
    torch.testing.assert_close(shares.sum(-1), torch.ones(4))
    shares[:, 0].sum().backward()
    assert logits.grad.isfinite().all()


def test_shares_are_continuous_where_the_formula_changes() -> None:
    logits = torch.tensor([[-40 - 1e-9, 0.0], [-40 + 1e-9, 0.0]], **DOUBLE)
    first, second = score_shares(logits)[:, 0].log()
    assert abs(float(first - second)) < 1e-8
