"""Sinkhorn's iterations between uniform marginals: unrolled in torch, or fused on CUDA."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sumpool.transport.fused.limits import triton_support, use_fused
from sumpool.transport.sinkhorn.unrolled import unrolled_sinkhorn

__all__ = ["MAX_TILE", "fused_sinkhorn_support", "sinkhorn"]

#: Maximum number of scores per image, with n and m rounded up to powers of two, that the kernels
#: keep on chip. The registers of a multiprocessor hold 65,536 numbers: the scores and, in the
#: backward pass, their gradient. At the limit, everything else spills to memory; tiles half as
#: large fit.
MAX_TILE = 32768


def sinkhorn(
    scores: Tensor, iterations: int, mask: Tensor | None = None, *, fused: bool | None = None
) -> Tensor:
    """Compute the plan π_ji = exp(φ_j + ψ_i + s_ji) by alternating scalings of both sides.

    Args:
        scores: Scores s = −ε c of shape (..., n, m), float32 or float64.
        iterations: Number of scalings of each side.
        mask: True for valid features, of shape (..., n).
        fused: As in :func:`~sumpool.transport.sum_pool`, with :func:`fused_sinkhorn_support`; by
            default, exported code does not use the kernels.

    Returns:
        Plan of shape (..., n, m).

    Example:
        >>> sinkhorn(torch.zeros(2, 4), iterations=1)
        tensor([[0.1250, 0.1250, 0.1250, 0.1250],
                [0.1250, 0.1250, 0.1250, 0.1250]])
    """
    # Exported code runs where neither this package nor Triton is installed.
    exporting = fused is None and torch.compiler.is_exporting()
    if exporting or not use_fused(fused, scores, lambda: fused_sinkhorn_support(scores)):
        return unrolled_sinkhorn(scores, iterations, mask)
    from sumpool.transport.sinkhorn.ops import sinkhorn_op

    n, m = scores.shape[-2:]
    batch = math.prod(scores.shape[:-2])
    if mask is not None:
        mask = mask.reshape(batch, n).contiguous()
    plan: Tensor = sinkhorn_op(scores.reshape(batch, n, m), mask, iterations)[0]
    return plan.reshape(scores.shape)


def fused_sinkhorn_support(scores: Tensor) -> str | None:
    """Return why the fused kernels cannot take ``scores`` (..., n, m), or None if they can.

    They require Triton and a CUDA device (or, on the CPU, Triton's interpreter:
    ``TRITON_INTERPRET=1``), scores in float32, and images of at most ``MAX_TILE`` scores.

    Example:
        >>> fused_sinkhorn_support(torch.zeros(1, 4, 8, dtype=torch.float64))
        'scores are torch.float64, not float32'
    """
    if scores.dtype != torch.float32:
        return f"scores are {scores.dtype}, not float32"
    reason = triton_support("scores", scores)
    if reason is not None:
        return reason
    n, m = scores.shape[-2:]
    # A loop instead of bit operations: m may be symbolic under torch.compile.
    columns = 1
    while columns < m:
        columns *= 2
    # Both sides being powers of two, n fits if and only if its next power of two does.
    if n > MAX_TILE // columns:
        return f"images have {n} × {m} scores, in powers of two more than {MAX_TILE}"
    return None
