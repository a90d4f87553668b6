"""Random subsets as a function of a seed and a count of draws."""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def random_subset(count: int, size: int, seed: int, draw: Tensor) -> Tensor:
    """``size`` of the numbers 0..count − 1, without repetition, in ascending order.

    Every number gets a hash of (seed, draw, number) [splitmix], and the largest hashes are taken.
    So a draw depends on nothing that is kept elsewhere: CPU and CUDA draw the same, a run resumes
    with the subset that comes next, and a replayed CUDA graph draws a new one as the count moves.

    Args:
        count: How many there are.
        size: How many to draw, between 1 and ``count``.
        seed: An integer of at least 0 and below 2⁶³.
        draw: The number of the draw, int64 of shape (), on the device that the subset is for.

    Example:
        >>> random_subset(1000, 4, seed=0, draw=torch.tensor(0))
        tensor([120, 136, 636, 735])
    """
    start = _mixed(_mixed(torch.full_like(draw, seed)) + draw * _signed(_GOLDEN))
    numbers = torch.arange(count, device=draw.device)
    hashes = _mixed(start + numbers * _signed(_GOLDEN))
    return hashes.topk(size, sorted=False).indices.sort().values


def _mixed(x: Tensor) -> Tensor:
    """The finishing steps of SplitMix64, on int64 that wraps around."""
    for shift, factor in _FACTORS:
        x = (x ^ _shifted(x, shift)) * _signed(factor)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """``x`` shifted to the right, zeros coming in."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(word: int) -> int:
    """A word of 64 bits as int64 reads it."""
    return word - (1 << 64) if word >> 63 else word
