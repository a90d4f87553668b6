"""Batches for the tests of the losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sumpool.losses import MetricLoss, build_loss

CLASSES, SIZE = 6, 5
#: Constants with which intra-batch connections fit that size, and do not depend on chance.
LIBC = {"heads": 1, "dropout": 0.0}

#: Labels of a batch, by what is particular about it.
LABELS = {
    "balanced": [0, 0, 0, 2, 2, 2, 5, 5, 5],
    "mixed up": [4, 1, 0, 1, 4, 4, 0, 3],
    "with single images": [1, 1, 3, 5, 5, 5, 0],
    "pairs": [2, 4, 2, 4],
}


def embeddings_of(
    labels: list[int], seed: int = 0, spread: float = 0.7, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Embeddings (b, D) around a center for each class, of norms other than 1."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(CLASSES, SIZE, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), SIZE, generator=generator, dtype=torch.float64)
    scale = 0.5 + torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)
    return ((centers[labels] + spread * noise) * scale).to(dtype)


def attributes_of(
    labels: list[int], m: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Attributes (b, m) that sum to 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), m, generator=generator, dtype=dtype).softmax(-1)


def small_loss(name: str, **options: Any) -> MetricLoss:
    """A loss for the batches here, in float64."""
    if name.startswith("xbm"):
        options = {"start_step": 0, "memory_batches": 3, "batch_size": 9, **options}
    if name == "libc":
        options = {**LIBC, **options}
    return build_loss(name, **{"num_classes": CLASSES, "embedding_size": SIZE, **options}).double()
