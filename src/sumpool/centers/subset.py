"""Random subsets as a function of a seed and the number of the draw."""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def random_subset(count: int, size: int, seed: int, draw: Tensor) -> Tensor:
    """Draw ``size`` of the numbers 0..count − 1 without repetition, in ascending order.

    Each number is hashed with the seed and the draw [splitmix], and the largest hashes are
    selected. Draws need no other state: CPU and CUDA draw the same subset, a resumed run draws the
    next subset, and a replayed CUDA graph draws a new one as ``draw`` increases.

    Args:
        count: Number of integers to draw from.
        size: Number of integers to draw, between 1 and ``count``.
        seed: An integer of at least 0 and below 2⁶³.
        draw: Number of the draw, int64 of shape (), on the device of the result.

    Example:
        >>> random_subset(1000, 4, seed=0, draw=torch.tensor(0))
        tensor([120, 136, 636, 735])
    """
    start = _mixed(_mixed(torch.full_like(draw, seed)) + draw * _signed(_GOLDEN))
    numbers = torch.arange(count, device=draw.device)
    hashes = _mixed(start + numbers * _signed(_GOLDEN))
    return hashes.topk(size, sorted=False).indices.sort().values


def _mixed(x: Tensor) -> Tensor:
    """Apply the finalizer of SplitMix64 to int64 with wraparound."""
    for shift, factor in _FACTORS:
        x = (x ^ _shifted(x, shift)) * _signed(factor)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift ``x`` logically to the right."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(word: int) -> int:
    """Reinterpret a 64-bit word as int64."""
    return word - (1 << 64) if word >> 63 else word
