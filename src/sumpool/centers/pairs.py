"""Comparison of centers of different classes, in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

#: Comparison of a pair.
Comparison = Literal["cosine", "distance"]

#: Pairs with the largest weight.
Extreme = Literal["near", "far"]

#: Reduces cosines (r, n), with a mask (r, n) of those that count, to (r,).
RowFunction = Callable[[Tensor, Tensor], Tensor]

#: Maximum number of pairs in memory at once.
BLOCK = 2**22


def rowwise(unit: Tensor, row: RowFunction, block: int = BLOCK) -> Tensor:
    """Apply ``row`` to the cosines of every center with all centers.

    With more than ``block`` pairs, blocks of rows are computed sequentially and recomputed in the
    backward pass, so that memory stays bounded.

    Args:
        unit: Unit centers (C, K, D).
        row: A function of cosines (r, C·K) and a mask of the same shape, True for centers of other
            classes, that returns (r, …).
        block: Maximum number of pairs in a block.

    Returns:
        The values of all centers, (C·K, …).
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
    """Return the logarithm of the distance √(2 − 2s) of unit vectors with cosine s."""
    return _floored(2 - 2 * cosine, 4 * torch.finfo(cosine.dtype).eps).log() / 2


def distance(cosine: Tensor) -> Tensor:
    """Return the distance √(2 − 2s) of unit vectors with cosine s."""
    return _floored(2 - 2 * cosine, 4 * torch.finfo(cosine.dtype).eps).sqrt()


def log_similarity(cosine: Tensor) -> Tensor:
    """Return the logarithm of the similarity (1 + s)/2 for a cosine s."""
    return _floored((1 + cosine) / 2, torch.finfo(cosine.dtype).eps).log()


def _floored(x: Tensor, floor: float) -> Tensor:
    """Clamp ``x`` to at least ``floor``, its rounding error, with the gradient of the identity."""
    return x + (floor - x).clamp(min=0).detach()
