"""Small layers and inputs for the tests of the poolings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sumpool import GeneralizedSumPool1d, GeneralizedSumPool2d
from transport.generators import source

CHANNELS, PROTOTYPES = 8, 4


def maps(batch: int = 3, height: int = 5, width: int = 6, seed: int = 0, **options: Any) -> Tensor:
    """Feature maps (B, C, H, W)."""
    shape = batch, CHANNELS, height, width
    return torch.randn(shape, generator=source(seed), **options) / CHANNELS**0.5


def tokens(batch: int = 3, length: int = 30, seed: int = 0, **options: Any) -> Tensor:
    """Token sequences (B, L, C)."""
    return maps(batch, length, 1, seed, **options).flatten(2).mT


def gsp2d(**options: Any) -> GeneralizedSumPool2d:
    return GeneralizedSumPool2d(CHANNELS, PROTOTYPES, **{"init": "random", **options})


def gsp1d(**options: Any) -> GeneralizedSumPool1d:
    return GeneralizedSumPool1d(CHANNELS, PROTOTYPES, **{"init": "random", **options})
