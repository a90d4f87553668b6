"""Bag of queries against loops and torch's encoder, and what its options accept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pooling.layers import CHANNELS, tokens
from pooling.naive_attention import attended, disturb, normalized
from sumpool.pooling import BoqPool1d
from sumpool.pooling.rivals.multihead import Multihead
from transport.generators import random_mask


def layer() -> BoqPool1d:
    pool = BoqPool1d(CHANNELS, 2, 4, 3, heads=2, dtype=torch.float64)
    disturb(pool)
    return pool


def naive(pool: BoqPool1d, x: Tensor) -> tuple[Tensor, Tensor]:
    """The embedding and the weights of valid local features (n, C)."""
    positions = [normalized(pool.reduced_norm, pool.reduce(it)) for it in x]
    found, weights = [], []
    for block in pool.blocks:
        looked = [attended(block.among_positions, it, positions)[0] for it in positions]
        pairs = zip(positions, looked, strict=True)
        positions = [normalized(block.attended_norm, it + more) for it, more in pairs]
        positions = [
            normalized(block.encoded_norm, it + block.narrow(block.widen(it).clamp(min=0)))
            for it in positions
        ]
        raw = list(block.queries[0])
        for it in raw:
            query = normalized(block.query_norm, it + attended(block.among_queries, it, raw)[0])
            seen, shares = attended(block.of_positions, query, positions)
            found.append(normalized(block.found_norm, seen))
            weights.append(shares)
    rows = [pool.combine(torch.stack([it[c] for it in found])) for c in range(4)]
    v = torch.cat(rows)
    return v / v.norm(), torch.stack(weights).mean(0)


def test_the_embedding_is_what_the_queries_of_all_blocks_find() -> None:
    x, mask, pool = tokens(2, 4, dtype=torch.float64), random_mask(2, 4), layer()
    out = pool.pool(x, mask)
    for image in range(2):
        embedding, weights = naive(pool, x[image, mask[image]])
        torch.testing.assert_close(out.embedding[image], embedding)
        torch.testing.assert_close(out.weights[image, mask[image]], weights)


def copied(attention: Multihead) -> dict[str, Any]:
    parts = (attention.query, attention.key, attention.value)
    return {
        "in_proj_weight": torch.cat([it.weight for it in parts]),
        "in_proj_bias": torch.cat([it.bias for it in parts]),
        "out_proj.weight": attention.out.weight,
        "out_proj.bias": attention.out.bias,
    }


def test_the_encoder_is_that_of_torch() -> None:
    block = layer().blocks[0]
    theirs = nn.TransformerEncoderLayer(4, 2, 16, 0.0, batch_first=True, dtype=torch.float64)
    pairs = {"linear1": block.widen, "linear2": block.narrow}
    pairs |= {"norm1": block.attended_norm, "norm2": block.encoded_norm}
    state = {f"self_attn.{key}": it for key, it in copied(block.among_positions).items()}
    for name, it in pairs.items():
        state |= {f"{name}.weight": it.weight, f"{name}.bias": it.bias}
    theirs.load_state_dict(state)
    x = tokens(dtype=torch.float64)[..., :4]
    torch.testing.assert_close(block.encode(x, None), theirs(x))


def test_heads_have_64_channels_unless_told() -> None:
    assert BoqPool1d(CHANNELS, width=128).blocks[0].of_positions.heads == 2
    with pytest.raises(ValueError, match=r"heads must divide width=128, got 3"):
        BoqPool1d(CHANNELS, width=128, heads=3)


def test_arguments_are_named() -> None:
    for option in ("queries", "width", "rows", "blocks"):
        with pytest.raises(ValueError, match=rf"{option} must be at least 1, got 0"):
            BoqPool1d(CHANNELS, **{option: 0})
