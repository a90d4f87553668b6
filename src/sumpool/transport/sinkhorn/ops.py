"""Fused Sinkhorn iterations as torch operators, ``torch.ops.sumpool.sinkhorn``.

Registered like those of fused sum pooling. The gradient is that of the unrolled iterations; second
derivatives raise an error.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from sumpool.transport.fused.launch import Kernel
from sumpool.transport.fused.limits import FUSED_VARIABLE
from sumpool.transport.sinkhorn import kernels

#: Scores per thread, and maximum number of warps per image.
SCORES_PER_THREAD, MAX_WARPS = 16, 16

# A fragment: the operators of sum pooling define the namespace.
_LIBRARY = torch.library.Library("sumpool", "FRAGMENT")
_LIBRARY.define("sinkhorn(Tensor scores, Tensor? mask, int iterations) -> (Tensor, Tensor)")
_LIBRARY.define(
    "sinkhorn_backward(Tensor grad_plan, Tensor scores, Tensor? mask, Tensor psi) -> Tensor"
)

_FORWARD = Kernel(kernels.sinkhorn_forward)
_BACKWARD = Kernel(kernels.sinkhorn_backward)


class Tile(NamedTuple):
    """Tile of an image: its sides, powers of two, and its number of warps."""

    rows: int
    columns: int
    warps: int


@lru_cache(maxsize=256)
def tile_of(n: int, m: int) -> Tile:
    """Return the tile for n features and m prototypes."""
    rows, columns = triton.next_power_of_2(n), triton.next_power_of_2(m)
    warps = rows * columns // (32 * SCORES_PER_THREAD)
    return Tile(rows, columns, min(max(warps, 1), MAX_WARPS))


def _forward(scores: Tensor, mask: Tensor | None, iterations: int) -> tuple[Tensor, Tensor]:
    """Plans of scores (B, n, m), and ψ_0, …, ψ_T (B, T + 1, m) for the backward pass."""
    plan, psi = _forward_fake(scores, mask, iterations)
    if plan.numel() == 0:
        return plan, psi
    batch, n, m = scores.shape
    tile = tile_of(n, m)
    with torch.cuda.device_of(scores):
        _FORWARD.launch(
            (batch, 1, 1),
            (scores.contiguous(), mask, math.log(m), iterations, n, plan, psi),
            (mask is not None, m, tile.rows, tile.columns), tile.warps,
        )  # fmt: skip
    return plan, psi


def _forward_fake(scores: Tensor, mask: Tensor | None, iterations: int) -> tuple[Tensor, Tensor]:
    batch, _, m = scores.shape
    return scores.new_empty(scores.shape), scores.new_empty((batch, iterations + 1, m))


def _backward(grad_plan: Tensor, scores: Tensor, mask: Tensor | None, psi: Tensor) -> Tensor:
    """Gradient of the scores (B, n, m)."""
    grad_scores = _backward_fake(grad_plan, scores, mask, psi)
    if grad_scores.numel() == 0:
        return grad_scores
    batch, n, m = scores.shape
    tile = tile_of(n, m)
    with torch.cuda.device_of(scores):
        _BACKWARD.launch(
            (batch, 1, 1),
            (
                grad_plan.contiguous(), scores.contiguous(), mask, math.log(m), psi.shape[1] - 1,
                n, psi, grad_scores,
            ),
            (mask is not None, m, tile.rows, tile.columns), tile.warps,
        )  # fmt: skip
    return grad_scores


def _backward_fake(grad_plan: Tensor, scores: Tensor, mask: Tensor | None, psi: Tensor) -> Tensor:
    return scores.new_empty(scores.shape)


class _Sinkhorn(torch.autograd.Function):
    """Autograd kernel of the forward operator."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        with torch._C._AutoDispatchBelowAutograd():
            plan, psi = torch.ops.sumpool.sinkhorn.default(*inputs)
        scores, mask, _ = inputs
        ctx.save_for_backward(scores, mask, psi)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(psi)
        return plan, psi

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        if grads[0] is None:
            return None, None, None
        to_scores = torch.ops.sumpool.sinkhorn_backward.default(grads[0], *ctx.saved_tensors)
        return to_scores, None, None


class _SinkhornBackward(torch.autograd.Function):
    """Autograd kernel of the backward operator: raises, as there is no second derivative."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            out: Tensor = torch.ops.sumpool.sinkhorn_backward.default(*inputs)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            "the fused Sinkhorn iterations cannot be differentiated twice: take those of torch "
            f"by fused=False, or by {FUSED_VARIABLE}=0 in the environment"
        )


for _key in ("CPU", "CUDA"):  # on the CPU the kernels run in Triton's interpreter
    _LIBRARY.impl("sinkhorn", _forward, _key)
    _LIBRARY.impl("sinkhorn_backward", _backward, _key)
_LIBRARY.impl("sinkhorn", _Sinkhorn.apply, "Autograd")
_LIBRARY.impl("sinkhorn_backward", _SinkhornBackward.apply, "Autograd")
torch.library.register_fake("sumpool::sinkhorn", _forward_fake, lib=_LIBRARY)
torch.library.register_fake("sumpool::sinkhorn_backward", _backward_fake, lib=_LIBRARY)
sinkhorn_op = torch.ops.sumpool.sinkhorn.default
