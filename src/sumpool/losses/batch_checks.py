"""Checks of the inputs of losses; messages name the argument and the accepted values."""

from __future__ import annotations

import torch
from torch import Tensor

from sumpool.transport.validation import check_floating, is_integer


def check_rows(name: str, rows: Tensor, size: int | None = None) -> None:
    """Raise unless ``rows`` is a floating-point tensor of shape (b, size) with b >= 1."""
    check_floating(name, rows)
    wanted = "size" if size is None else str(size)
    if rows.ndim != 2 or rows.shape[0] < 1 or (size is not None and rows.shape[1] != size):
        raise ValueError(
            f"{name} must have shape (b, {wanted}) with b >= 1, got {tuple(rows.shape)}"
        )


def check_labels(labels: Tensor, name: str, count: int) -> Tensor:
    """Check that ``labels`` are integers of shape (count,) and return them as int64."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(labels).__name__}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"{name} must be a tensor of integers, got {labels.dtype}")
    if labels.shape != (count,):
        raise ValueError(
            f"{name} must have shape {(count,)}, one label for each row, got {tuple(labels.shape)}"
        )
    return labels.to(torch.int64)


def check_counts(**counts: int) -> None:
    """Raise a ValueError that names the first argument that is not an integer of at least 1."""
    for name, value in counts.items():
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
