"""Attention pooling against loops and against timm's, and what its options accept."""

from __future__ import annotations

import pytest
import torch
from timm.layers import AttentionPoolLatent
from torch import nn

from pooling.layers import CHANNELS, tokens
from pooling.naive_attention import attended, disturb, normalized
from sumpool.pooling import AttentionPool1d
from sumpool.pooling.rivals.multihead import Multihead
from transport.generators import random_mask


def layer(heads: int = 2, mlp_ratio: float = 4.0) -> AttentionPool1d:
    pool = AttentionPool1d(CHANNELS, heads, mlp_ratio, dtype=torch.float64)
    disturb(pool)
    return pool


def test_the_embedding_is_what_the_query_finds() -> None:
    x, mask, pool = tokens(length=7, dtype=torch.float64), random_mask(3, 7), layer(mlp_ratio=0)
    out = pool.pool(x, mask)
    for image in range(3):
        positions = [normalized(pool.norm, it) for it in x[image, mask[image]]]
        found, weights = attended(pool.attention, pool.latent[0, 0], positions)
        torch.testing.assert_close(out.embedding[image], found)
        torch.testing.assert_close(out.weights[image, mask[image]], weights)


def test_it_computes_what_timm_does_after_layer_normalization() -> None:
    pool, x = layer(), tokens(dtype=torch.float64)
    norm = lambda size, **_: nn.LayerNorm(size, eps=1e-6, dtype=torch.float64)  # noqa: E731
    theirs = AttentionPoolLatent(CHANNELS, num_heads=2, norm_layer=norm, dtype=torch.float64)
    own = pool.attention
    theirs.load_state_dict(
        {
            "latent": pool.latent,
            "q.weight": own.query.weight,
            "q.bias": own.query.bias,
            "kv.weight": torch.cat([own.key.weight, own.value.weight]),
            "kv.bias": torch.cat([own.key.bias, own.value.bias]),
            "proj.weight": own.out.weight,
            "proj.bias": own.out.bias,
            **{f"norm.{key}": it for key, it in pool.mlp.norm.state_dict().items()},
            **{f"mlp.fc1.{key}": it for key, it in pool.mlp.widen.state_dict().items()},
            **{f"mlp.fc2.{key}": it for key, it in pool.mlp.narrow.state_dict().items()},
        }
    )
    torch.testing.assert_close(pool(x), theirs(pool.norm(x)))


def test_attention_starts_with_the_variances_of_torch() -> None:
    torch.manual_seed(0)
    own, theirs = Multihead(64, 4), nn.MultiheadAttention(64, 4)
    for layer in (own.query, own.key, own.value):
        torch.testing.assert_close(
            layer.weight.std(), theirs.in_proj_weight.std(), rtol=0.03, atol=0
        )
        assert not layer.bias.any()
    torch.testing.assert_close(
        own.out.weight.std(), theirs.out_proj.weight.std(), rtol=0.03, atol=0
    )


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match=r"heads must divide channels=8, got 3"):
        AttentionPool1d(CHANNELS, heads=3)
    with pytest.raises(ValueError, match=r"heads must be at least 1, got 0"):
        AttentionPool1d(CHANNELS, heads=0)
    assert AttentionPool1d(12).attention.heads == 4


def test_the_perceptron_needs_a_unit() -> None:
    with pytest.raises(ValueError, match=r"mlp_ratio must be 0 or at least 1/channels = 1/8"):
        AttentionPool1d(CHANNELS, mlp_ratio=0.1)
    with pytest.raises(ValueError, match=r"mlp_ratio must be 0 or .* got -1"):
        AttentionPool1d(CHANNELS, mlp_ratio=-1)
