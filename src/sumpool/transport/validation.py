"""Argument checks, whose errors name the argument, its value and the accepted values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

#: Smallest share solved for. Below it, 1 − σ(−x) rounds to 1 in every dtype, so that μ = 1 gives
#: weights of exactly 1/n without a special case.
LEAST_SHARE = 1e-30
#: Largest ε: its product with a cost, at most 4, is far from overflow in float32.
LARGEST_EPS = 1e30


def is_integer(value: object) -> TypeGuard[int]:
    """Whether ``value`` is an integer, of Python or NumPy, and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a real number, of Python or NumPy, and not a boolean."""
    return isinstance(value, float | np.floating) or is_integer(value)


def check_floating(name: str, x: Tensor) -> None:
    """Raise a TypeError unless ``x`` is a floating-point tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {x.dtype}")


def check_features(features: Tensor, prototypes: Tensor) -> None:
    """Raise unless features are (..., n, d) and prototypes (m, d) with m, n >= 1."""
    check_floating("features", features)
    check_floating("prototypes", prototypes)
    if prototypes.ndim != 2 or prototypes.shape[0] < 1:
        raise ValueError(
            f"prototypes must have shape (m, d) with m >= 1, got {tuple(prototypes.shape)}"
        )
    if features.ndim < 2 or features.shape[-2] < 1:
        raise ValueError(
            f"features must have shape (..., n, d) with n >= 1, got {tuple(features.shape)}"
        )
    if features.shape[-1] != prototypes.shape[-1]:
        raise ValueError(
            f"features must have the {prototypes.shape[-1]} channels of the prototypes, "
            f"got {features.shape[-1]}"
        )


def check_mu(mu: float | Tensor, *, below_one: bool = False) -> None:
    """Raise unless μ is in (0, 1], or in (0, 1) with ``below_one``, and not too small to solve."""
    if below_one:
        accepted = f"a number in (0, 1), at least {LEAST_SHARE}, where the background is pooled"
        _check_scalar("mu", mu, accepted, lambda v: (v >= LEAST_SHARE) & (v < 1))
    else:
        accepted = f"a number in (0, 1], at least {LEAST_SHARE}"
        _check_scalar("mu", mu, accepted, lambda v: (v >= LEAST_SHARE) & (v <= 1))


def check_eps(eps: float | Tensor) -> None:
    """Raise unless ε is positive and ε times a cost is finite in float32."""
    accepted = f"a positive finite number up to {LARGEST_EPS}"
    _check_scalar("eps", eps, accepted, lambda v: (v > 0) & (v <= LARGEST_EPS))


def _check_scalar(
    name: str, value: float | Tensor, accepted: str, admits: Callable[[Any], Any]
) -> None:
    if isinstance(value, Tensor):
        check_floating(name, value)
        # Reading a value from an accelerator would stall it and cannot be captured in a graph, so
        # only tensors on the CPU are checked.
        if value.device.type != "cpu" or torch.compiler.is_compiling():
            return
        if not bool(admits(value.detach()).all()):
            raise ValueError(f"{name} must be {accepted}, got {value.detach()}")
    elif not is_number(value):
        raise TypeError(f"{name} must be {accepted} or a tensor, got {type(value).__name__}")
    # NumPy's half precision overflows when compared.
    elif not admits(float(value) if isinstance(value, np.floating) else value):
        raise ValueError(f"{name} must be {accepted}, got {value}")


def recording() -> bool:
    """Whether a CUDA graph is being recorded, during which no value can be read."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def readable() -> bool:
    """Whether tensor values can be read: nothing is being compiled or recorded."""
    return not (torch.compiler.is_compiling() or recording())


def check_label_range(labels: Tensor, num_classes: int) -> None:
    """Raise a ValueError unless the ``labels`` lie in 0..num_classes − 1.

    Skipped during CUDA graph capture, where values cannot be read; earlier steps were checked.
    """
    if recording():
        return
    low, high = torch.stack(torch.aminmax(labels)).tolist()
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels must lie in 0..{num_classes - 1} (num_classes = {num_classes}), "
            f"got {low if low < 0 else high}"
        )


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a tensor of ``shape`` can be expanded to ``target``."""
    try:
        return bool(torch.broadcast_shapes(shape, target) == torch.Size(target))
    except RuntimeError:
        return False


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless ``mask`` is boolean, broadcasts to ``shape`` and leaves a valid feature."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor (True = valid feature), got {kind}")
    if not broadcasts_to(mask.shape, shape):
        raise ValueError(f"mask must broadcast to shape {shape}, got {tuple(mask.shape)}")
    if mask.device.type == "cpu" and not torch.compiler.is_compiling():
        empty = ~mask.any(-1)
        if bool(empty.any()):
            where = empty.nonzero()[0].tolist()
            raise ValueError(
                f"mask must leave at least one valid feature per image, image {where} has none"
            )


def solve_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the dtype to solve problems in: float64 if an input is float64, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def check_numbers(**values: float | None) -> None:
    """Raise a TypeError that names the first argument that is neither a number nor None."""
    for name, value in values.items():
        if not (value is None or is_number(value)):
            raise TypeError(f"{name} must be a number, got {value!r}")


def check_at_least_one(**counts: int) -> None:
    """Raise an error that names the first argument that is not an integer of at least 1."""
    for name, value in counts.items():
        if not is_integer(value):
            raise TypeError(f"{name} must be an integer of at least 1, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_seed(seed: int) -> int:
    """Return ``seed`` if it is an integer from 0 to 2⁶⁴ − 1, else raise a ValueError."""
    if not is_integer(seed) or not 0 <= seed < 2**64:
        raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, got {seed!r}")
    return int(seed)


def check_one_of(accepted: Collection[str], **arguments: str) -> None:
    """Raise a ValueError that names the first argument that is not in ``accepted``."""
    for name, value in arguments.items():
        if value not in accepted:
            raise ValueError(f"{name} must be one of {accepted}, got {value!r}")


def check_positive(**numbers: float) -> None:
    """Raise an error that names the first argument that is not a number in (0, ∞)."""
    for name, value in numbers.items():
        if not is_number(value):
            raise TypeError(f"{name} must be a positive finite number, got {value!r}")
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive finite number, got {value}")
