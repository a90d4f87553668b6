"""Where on a 2×2 collage pooling weights fall."""

from __future__ import annotations

from torch import Tensor


def tile_shares(weights: Tensor) -> Tensor:
    """The share of weights (b, h, w) on each tile of a 2×2 collage, (b, 4), for even h and w."""
    batch, height, width = weights.shape
    if height % 2 or width % 2:
        raise ValueError(f"weights must have an even height and width, got {tuple(weights.shape)}")
    tiles = weights.reshape(batch, 2, height // 2, 2, width // 2).sum((2, 4))
    return tiles.flatten(1) / tiles.sum((1, 2))[:, None]
