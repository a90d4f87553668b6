"""SOLAR pooling against loops, and its start as GeMean."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.pooling.solar import SolarPool1d, SolarPool2d
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


def test_the_exponent_is_learned_unless_it_is_not() -> None:
    assert SolarPool2d(CHANNELS).p.requires_grad
    assert not SolarPool2d(CHANNELS, learn_p=False).p.requires_grad


def test_maps_are_pooled_as_the_sequence_of_their_features() -> None:
    flat, x = layer(dtype=torch.float32), maps()
    pool = SolarPool2d(CHANNELS)
    pool.load_state_dict(flat.state_dict())
    torch.testing.assert_close(pool(x), flat(x.flatten(2).mT))


def test_what_stands_at_masked_positions_has_no_influence() -> None:
    pool, x, mask = layer(), tokens(length=7, **DOUBLE), random_mask(3, 7)
    spoilt = x.masked_fill(~mask.unsqueeze(-1), math.nan).requires_grad_()
    out = pool.pool(spoilt, mask)
    torch.testing.assert_close(out.embedding, pool(x, mask))
    (out.embedding.sum() + out.weights.square().sum()).backward()
    assert spoilt.grad.isfinite().all()
    assert (spoilt.grad[~mask] == 0).all()


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        SolarPool2d(0)
    with pytest.raises(ValueError, match="reduction must be at least 1, got 0"):
        SolarPool2d(4, 0)
    with pytest.raises(ValueError, match="p must be a positive finite number, got -1"):
        SolarPool2d(4, p=-1.0)
    with pytest.raises(ValueError, match="floor must be a positive finite number, got 0"):
        SolarPool2d(4, floor=0.0)
    with pytest.raises(ValueError, match="x must have 5 channels, got 8"):
        SolarPool2d(5)(maps())
