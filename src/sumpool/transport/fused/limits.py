"""Requirements of the fused kernels, and the choice between fused and plain path."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import torch
from torch import Tensor

from sumpool.transport.exact import Exact
from sumpool.transport.solve import Solver, resolve_solver

#: Environment variable that disables the fused kernels if it is "0".
FUSED_VARIABLE = "SUMPOOL_FUSED"

#: Whether Triton, a dependency of torch's CUDA builds, is installed.
HAS_TRITON = importlib.util.find_spec("triton") is not None

#: Largest sum pooling problem the kernels support: prototypes, features per image, channels.
MAX_PROTOTYPES, MAX_FEATURES, MAX_CHANNELS = 256, 16384, 4096


def fused_support(
    features: Tensor,
    prototypes: Tensor,
    mu: float | Tensor,
    eps: float | Tensor,
    solver: str | Solver = "exact",
) -> str | None:
    """Return why the fused kernels cannot take this problem, or None if they can.

    They require Triton and a CUDA device (or, on the CPU, Triton's interpreter:
    ``TRITON_INTERPRET=1``), features in float32, float16 or bfloat16, scalar μ and ε, the exact
    solver, and at most 256 prototypes, 16,384 features and 4,096 channels.

    The arguments are those of :func:`~sumpool.transport.sum_pool`.

    Example:
        >>> fused_support(torch.zeros(1, 4, 8, dtype=torch.float64), torch.zeros(2, 8), 0.3, 5.0)
        'features are torch.float64, not float32, float16 or bfloat16'
    """
    if prototypes.dtype == torch.float64:
        return "prototypes are torch.float64"
    reason = feature_support(features)
    if reason is not None:
        return reason
    chosen = resolve_solver(solver)
    if not isinstance(chosen, Exact):
        # The name, since the repr cannot be compiled.
        return f"the solver is {type(chosen).__name__}, not exact"
    for name, value in (("mu", mu), ("eps", eps)):
        if isinstance(value, Tensor) and value.numel() != 1:
            return f"{name} has {value.numel()} values, not one"
    sizes = (
        ("prototypes", prototypes.shape[0], MAX_PROTOTYPES),
        ("features", features.shape[-2], MAX_FEATURES),
        ("channels", features.shape[-1], MAX_CHANNELS),
    )
    for name, size, most in sizes:
        if size > most:
            return f"there are {size} {name}, more than {most}"
    return None


def feature_support(features: Tensor) -> str | None:
    """Return why no kernel can take ``features``, of any size, or None if one can."""
    if features.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"features are {features.dtype}, not float32, float16 or bfloat16"
    return triton_support("features", features)


def triton_support(name: str, x: Tensor) -> str | None:
    """Return why Triton cannot run on ``x``, named ``name``, or None if it can."""
    if not HAS_TRITON:
        return "Triton is not installed"
    interpreted = x.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    if x.device.type != "cuda" and not interpreted:
        return f"{name} are on {x.device}, not on a CUDA device"
    return None


def use_fused(fused: bool | None, x: Tensor, support: Callable[[], str | None]) -> bool:
    """Whether to take the fused path: on request, or by default on CUDA.

    ``support`` returns what prevents it. It is called only if needed, since its limits would
    constrain the shapes of exported code.
    """
    if fused is None:
        return x.is_cuda and os.environ.get(FUSED_VARIABLE) != "0" and support() is None
    if fused:
        reason = support()
        if reason is not None:
            raise ValueError(f"fused=True is not possible: {reason}")
    return fused
