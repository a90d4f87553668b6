"""SOLAR pooling against loops, and its start as GeMean."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.pooling.rivals.solar import SolarPool1d, SolarPool2d
from transport.generators import random_mask

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def layer(**options: Any) -> SolarPool1d:
    """A layer whose block does something: ψ is not 0."""
    pool = SolarPool1d(CHANNELS, **{**DOUBLE, **options})
    nn.init.normal_(pool.back.weight, std=0.5)
    nn.init.normal_(pool.back.bias)
    return pool


def affine(linear: nn.Linear, v: Tensor) -> Tensor:
    rows = zip(linear.weight.detach(), linear.bias.detach(), strict=True)
    return torch.stack([b + (row * v).sum() for row, b in rows])


def naive(pool: SolarPool1d, x: Tensor) -> tuple[Tensor, Tensor]:
    """One set of valid features (n, C): its embedding and the attention each receives."""
    q = [affine(pool.query, f).relu() for f in x]
    k = [affine(pool.key, f).relu() for f in x]
    v = [affine(pool.value, f) for f in x]
    received = torch.zeros(len(x), **DOUBLE)
    total = torch.zeros(x.shape[1], **DOUBLE)
    for i, f in enumerate(x):
        raw = [math.exp(float((q[i] * key).sum()) / math.sqrt(len(key))) for key in k]
        attended = sum(r / sum(raw) * value for r, value in zip(raw, v, strict=True))
        received += torch.tensor(raw, **DOUBLE) / sum(raw) / len(x)
        h = f + affine(pool.back, attended)
        total += h.clamp(min=pool.floor) ** pool.p.item()
    return (total / len(x)) ** (1 / pool.p.item()), received


@pytest.mark.parametrize("options", [{}, {"reduction": 1, "p": 1.7}, {"reduction": 16}])
@pytest.mark.parametrize("masked", [False, True])
def test_the_formula(options: dict[str, Any], masked: bool) -> None:
    pool, x = layer(**options), tokens(length=7, **DOUBLE)
    mask = random_mask(3, 7) if masked else torch.ones(3, 7, dtype=torch.bool)
    out = pool.pool(x, mask if masked else None)
    for it in range(3):
        embedding, received = naive(pool, x[it, mask[it]])
        torch.testing.assert_close(out.embedding[it], embedding, rtol=0, atol=1e-12)
        torch.testing.assert_close(out.weights[it, mask[it]], received, rtol=0, atol=1e-12)
        assert (out.weights[it, ~mask[it]] == 0).all()


def test_a_new_layer_is_generalized_mean_pooling() -> None:
    x = maps().abs()
    out = SolarPool2d(CHANNELS, p=2.5)(x)
    torch.testing.assert_close(out, generalized_mean(x.flatten(2).mT, 2.5))


def test_the_exponent_is_learned_unless_it_is_held() -> None:
    assert SolarPool2d(CHANNELS).p.requires_grad
    assert not SolarPool2d(CHANNELS, learn_p=False).p.requires_grad
