"""Attention by loops over lists of vectors, for the tests of poolings that have it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.rivals.multihead import Multihead


def softmax(values: list[float]) -> list[float]:
    powers = [math.exp(it) for it in values]
    return [it / sum(powers) for it in powers]


def normalized(layer: nn.LayerNorm, v: Tensor) -> Tensor:
    """Layer normalization of one vector, by its definition."""
    centered = v - v.mean()
    scale = centered.square().mean() + layer.eps
    return centered / scale.sqrt() * layer.weight + layer.bias


def attended(layer: Multihead, query: Tensor, positions: list[Tensor]) -> tuple[Tensor, Tensor]:
    """What one query (C,) finds in positions (C,), and their weights, averaged over heads."""
    width = len(query) // layer.heads
    parts, weights = [], torch.zeros(len(positions), dtype=torch.float64)
    for head in range(layer.heads):
        own = slice(head * width, (head + 1) * width)
        q = layer.query(query)[own]
        logits = [float(q @ layer.key(it)[own]) / math.sqrt(width) for it in positions]
        shares = softmax(logits)
        found = zip(shares, positions, strict=True)
        parts.append(sum(share * layer.value(it)[own] for share, it in found))
        weights += torch.tensor(shares, dtype=torch.float64) / layer.heads
    return layer.out(torch.cat(parts)), weights


def disturb(layer: nn.Module, seed: int = 0) -> None:
    """Move every parameter from where it starts, such as biases from 0, and fix it there."""
    generator = torch.Generator().manual_seed(seed)
    for it in layer.requires_grad_(False).parameters():
        it.add_(0.3 * torch.randn(it.shape, generator=generator).to(it))
