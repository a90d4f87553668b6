"""Argument checks of means and regularizers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sumpool.transport.validation import (
    broadcasts_to,
    check_floating,
    is_integer,
    is_number,
    readable,
)


def check_number(
    name: str, value: float, accepted: str, admits: Callable[[float], bool] = lambda it: True
) -> float:
    """Return ``value``, a number other than NaN, not a boolean, that ``admits`` accepts."""
    if not is_number(value):
        raise TypeError(f"{name} must be {accepted}, got {type(value).__name__}")
    if math.isnan(value) or not admits(value):
        raise ValueError(f"{name} must be {accepted}, got {value}")
    return float(value)


def check_integer(name: str, value: int, accepted: str, admits: Callable[[int], bool]) -> int:
    """Return ``value``, an integer that ``admits`` accepts."""
    if not is_integer(value):
        raise TypeError(f"{name} must be {accepted}, got {value!r}")
    if not admits(value):
        raise ValueError(f"{name} must be {accepted}, got {value}")
    return int(value)


def check_numbers(x: Tensor, dim: int, mask: Tensor | None) -> None:
    """Raise unless ``x``, ``dim`` and ``mask`` are valid arguments of a mean."""
    check_floating("x", x)
    if x.ndim < 1:
        raise ValueError("x must have at least one dimension, got a scalar")
    accepted = f"an integer in {-x.ndim}..{x.ndim - 1} for x of shape {tuple(x.shape)}"
    check_integer("dim", dim, accepted, lambda it: -x.ndim <= it < x.ndim)
    if x.shape[dim] < 1:
        raise ValueError(f"x must have a number along dim {dim}, got shape {tuple(x.shape)}")
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor (True = counts), got {kind}")
    if not broadcasts_to(mask.shape, x.shape):
        raise ValueError(f"mask must broadcast to shape {tuple(x.shape)}, got {tuple(mask.shape)}")


def check_left(mask: Tensor, dim: int, least: int) -> None:
    """Raise unless ``mask`` leaves ``least`` numbers along ``dim``, if values can be read."""
    if readable():
        fewest = int(mask.sum(dim).min()) if mask.numel() else least
        if fewest < least:
            raise ValueError(
                f"mask must leave at least {least} numbers along dim {dim}, got {fewest}"
            )


def check_positive(x: Tensor, mask: Tensor | None) -> None:
    """Raise unless all unmasked numbers of ``x`` are positive, if values can be read."""
    if readable():
        bad = ~(x > 0) if mask is None else ~(x > 0) & mask
        if bool(bad.any()):
            raise ValueError(f"x must be positive, got {float(x[bad.expand_as(x)][0])}")


def check_centers(centers: Tensor) -> None:
    """Raise unless ``centers`` has shape (C, D) or (C, K, D) with at least two classes."""
    check_floating("centers", centers)
    if centers.ndim not in (2, 3) or centers.shape[0] < 2 or 0 in centers.shape:
        raise ValueError(
            "centers must have shape (C, D) or (C, K, D) with C >= 2 and K, D >= 1, "
            f"got {tuple(centers.shape)}"
        )
