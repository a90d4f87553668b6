"""The image regions that feed each prototype most."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Feeding:
    """Weights that prototypes receive from a sample of images.

    Attributes:
        usage: Mean attribute of each prototype, (m,); they sum to 1.
        weights: For each image and prototype, the largest weight from a position to the prototype,
            relative to an equal one, n π / μ, (N, m).
        cells: The row-major position of that weight, (N, m).
        grid: Rows and columns of positions.
    """

    usage: Tensor
    weights: Tensor
    cells: Tensor
    grid: tuple[int, int]

    def top(self, prototype: int, count: int) -> list[tuple[int, int, float]]:
        """Return image, position and weight of the largest contributions, one per image."""
        weights = self.weights[:, prototype]
        order = weights.argsort(descending=True, stable=True)[:count]
        return [(int(i), int(self.cells[i, prototype]), float(weights[i])) for i in order]


def feeding(plans: Iterable[Tensor]) -> Feeding | None:
    """Gather the plans of batches of images; None for sequences that are not square.

    Args:
        plans: Mass from each position to each prototype, π / μ, (B, m, h, w) for maps or (B, m, L)
            for sequences; it sums to 1 per image.
    """
    attributes, weights, cells = [], [], []
    grid: tuple[int, int] | None = None
    for plan in plans:
        grid = grid_shape(tuple(plan.shape[2:]))
        if grid is None:
            return None
        mass = plan.detach().flatten(2).double().cpu()  # (B, m, n)
        attributes.append(mass.sum(2))
        largest, cell = mass.max(2)
        weights.append(mass.shape[2] * largest)
        cells.append(cell)
    if grid is None:
        raise ValueError("plans must hold at least one batch, got none")
    return Feeding(torch.cat(attributes).mean(0), torch.cat(weights), torch.cat(cells), grid)


def grid_shape(positions: tuple[int, ...]) -> tuple[int, int] | None:
    """Return rows and columns of positions; None for a sequence that is not square.

    Example:
        >>> grid_shape((7, 5)), grid_shape((196,)), grid_shape((50,))
        ((7, 5), (14, 14), None)
    """
    if len(positions) == 2:
        return positions[0], positions[1]
    side = math.isqrt(positions[0])
    return (side, side) if side * side == positions[0] else None
