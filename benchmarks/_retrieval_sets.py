"""Random embeddings with the sizes of known test sets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Set:
    """A test set to draw.

    Attributes:
        items: Number of embeddings.
        classes: Number of classes.
        smallest: Images in the smallest class.
        largest: Images in the largest class.
        noise: Distance of embeddings from their class center, relative to its norm.
    """

    items: int
    classes: int
    smallest: int
    largest: int
    noise: float


#: Sets by command-line name. Class sizes are those of the data sets; the noise yields the P@1 that
#: networks reach on them, about 0.6 and 0.75.
SETS = {
    "cub": Set(5_924, 100, 41, 60, 2.3),
    "sop": Set(60_502, 11_316, 2, 12, 1.4),
    "six": Set(120_000, 6, 20_000, 20_000, 4.0),
    "tiny": Set(600, 20, 10, 50, 1.5),
    "tiny-six": Set(1_200, 6, 200, 200, 2.0),
}


def draw(chosen: Set, dimensions: int) -> tuple[Tensor, Tensor]:
    """Draw unit vectors (N, d) and labels (N,), sorted by class like the data sets."""
    generator = torch.Generator().manual_seed(0)
    sizes = class_sizes(chosen, generator)
    labels = torch.repeat_interleave(torch.arange(chosen.classes), sizes)
    centers = F.normalize(torch.randn(chosen.classes, dimensions, generator=generator), dim=1)
    spread = chosen.noise / dimensions**0.5
    noise = torch.randn(chosen.items, dimensions, generator=generator) * spread
    return F.normalize(centers[labels] + noise, dim=1), labels


def class_sizes(chosen: Set, generator: torch.Generator) -> Tensor:
    """Draw class sizes between the smallest and the largest that sum to the number of items.

    The probability of a size s is proportional to tˢ, with t chosen to match the mean.
    """
    sizes = torch.arange(chosen.smallest, chosen.largest + 1, dtype=torch.float64)
    low, high = -5.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        weights = torch.softmax(middle * sizes, 0)
        below = float(weights @ sizes) < chosen.items / chosen.classes
        low, high = (middle, high) if below else (low, middle)
    drawn = torch.multinomial(weights, chosen.classes, replacement=True, generator=generator)
    out = drawn + chosen.smallest
    # The first and the last class have the extreme sizes; the others absorb the difference.
    out[0], out[-1] = chosen.smallest, chosen.largest
    while (missing := chosen.items - int(out.sum())) != 0:
        step = 1 if missing > 0 else -1
        room = (out < chosen.largest) if missing > 0 else (out > chosen.smallest)
        room[0] = room[-1] = False
        out[room.nonzero()[:, 0][: abs(missing)]] += step
    return out
