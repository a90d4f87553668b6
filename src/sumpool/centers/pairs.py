"""Pairs of centers of different classes, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

#: What a pair is compared by.
Comparison = Literal["cosine", "distance"]

#: Which pairs count most.
End = Literal["near", "far"]

#: From cosines (r, n) and what counts among them (r, n) to a number for each row, (r,).
RowFunction = Callable[[Tensor, Tensor], Tensor]

#: Pairs that are held in memory at once.
BLOCK = 2**22


def rowwise(unit: Tensor, row: RowFunction, block: int = BLOCK) -> Tensor:
    """``row`` for every center, given its cosines with all centers of all classes.

    Where there are more than ``block`` pairs, blocks of rows are computed one after the other, and
    again in the backward pass, so that memory stays bounded.

    Args:
        unit: Centers (C, K, D) of length 1.
        row: A function of cosines (r, C·K) and of a mask of the same shape, True for centers of
            other classes.
        block: Pairs in a block.

    Returns:
        A number for each center, of shape (C·K,).
    """
    each = unit.shape[1]
    flat = unit.flatten(0, 1)  # (C·K, D)
    height = max(1, block // flat.shape[0])

    def part(rows: Tensor, start: int) -> Tensor:
        of_row = torch.arange(start, start + rows.shape[0], device=rows.device) // each
        of_column = torch.arange(flat.shape[0], device=rows.device) // each
        return row(rows @ flat.mT, of_row.unsqueeze(1) != of_column)  # (r, C·K) each

    if height >= flat.shape[0]:
        return part(flat, 0)
    parts = []
    for start in range(0, flat.shape[0], height):
        rows = flat[start : start + height]
        found = checkpoint(part, rows, start, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(found, Tensor)
        parts.append(found)
    return torch.cat(parts)


def log_distance(cosine: Tensor) -> Tensor:
    """The logarithm of the distance √(2 − 2s) of unit vectors, from their cosine s."""
    return _floored(2 - 2 * cosine, 4 * torch.finfo(cosine.dtype).eps).log() / 2


def distance(cosine: Tensor) -> Tensor:
    """The distance √(2 − 2s) of unit vectors, from their cosine s."""
    return _floored(2 - 2 * cosine, 4 * torch.finfo(cosine.dtype).eps).sqrt()


def log_similarity(cosine: Tensor) -> Tensor:
    """The logarithm of the similarity (1 + s)/2, which is positive, from the cosine s."""
    return _floored((1 + cosine) / 2, torch.finfo(cosine.dtype).eps).log()


def _floored(x: Tensor, floor: float) -> Tensor:
    """``x``, at least ``floor``, which is what it is known to; the gradient passes as it is."""
    return x + (floor - x).clamp(min=0).detach()
