"""Fused generalized sum pooling as torch operators, ``torch.ops.sumpool.sum_pool``.

Registered with fake implementations and gradients, so that compile, export and autograd work. Calls
through ``torch.library.Library`` cost a third of those of ``torch.library.custom_op``; in eager
mode, calls cost more than the kernels. First-order gradients come from the fused backward kernels;
gradients that are differentiated again take the plain path.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from sumpool.transport.fused import backward as backward_kernels
from sumpool.transport.fused import forward as forward_kernels
from sumpool.transport.fused.launch import Kernel
from sumpool.transport.plain import plain_sum_pool

#: Maximum number of programs of the backward pass; each holds a part of the prototypes' gradient.
BACKWARD_PROGRAMS = 132

_LIBRARY = torch.library.Library("sumpool", "DEF")
_SETTINGS = (
    "float mu, float eps, Tensor? mu_tensor, Tensor? eps_tensor, Tensor? mask, bool background"
)
_LIBRARY.define(
    f"sum_pool(Tensor features, Tensor prototypes, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "sum_pool_backward(Tensor? grad_embedding, Tensor? grad_weights, Tensor? grad_attributes, "
    f"Tensor features, Tensor prototypes, {_SETTINGS}, Tensor saved) -> (Tensor, Tensor, Tensor)"
)


_POOL_IMAGE = Kernel(forward_kernels.pool_image)
_TILE_LOG_SUMS = Kernel(forward_kernels.tile_log_sums)
_SOLVE_IMAGE = Kernel(forward_kernels.solve_image)
_TILE_SUMS = Kernel(forward_kernels.tile_sums)
_TOTAL_SUMS = Kernel(forward_kernels.total_sums)
_TILE_GRADIENTS = Kernel(backward_kernels.tile_gradients)
_PROTOTYPE_GRADIENT = Kernel(backward_kernels.prototype_gradient)


class _Blocks(NamedTuple):
    """Sizes for a problem: rows of a tile, all features, prototypes, channels per step."""

    rows: int
    features: int
    prototypes: int
    channels: int
    tiles: int
    warps: int


@lru_cache(maxsize=256)
def _forward_blocks(n: int, m: int, d: int) -> _Blocks:
    """Tile sizes of the forward pass, tuned on an H200."""
    prototypes = max(16, triton.next_power_of_2(m))
    if prototypes > 128:
        return _make_blocks(n, d, prototypes, rows=32, channels=32, warps=8)
    return _make_blocks(n, d, prototypes, rows=64, channels=64, warps=4 if prototypes <= 64 else 8)


@lru_cache(maxsize=256)
def _backward_blocks(n: int, m: int, d: int, few: bool) -> _Blocks:
    """Tile sizes of the backward pass; ``few`` images need smaller tiles to fill the device."""
    prototypes = max(16, triton.next_power_of_2(m))
    if prototypes <= 64 and not few:
        return _make_blocks(n, d, prototypes, rows=64, channels=32, warps=4)
    return _make_blocks(
        n, d, prototypes, rows=32, channels=64 if prototypes <= 128 else 16, warps=8
    )


def _make_blocks(n: int, d: int, prototypes: int, rows: int, channels: int, warps: int) -> _Blocks:
    every = max(16, triton.next_power_of_2(n))
    rows = min(every, rows)
    channels = min(channels, max(16, triton.next_power_of_2(d)))
    return _Blocks(rows, every, prototypes, channels, triton.cdiv(n, rows), warps)


def _precision() -> str:
    """Precision of float32 products, following ``torch.set_float32_matmul_precision``.

    Three tf32 products are exact to float32's rounding.
    """
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Context in which kernels on ``x`` are launched: its device, if it is not the current one."""
    if x.is_cuda and x.device.index != torch.cuda.current_device():
        return torch.cuda.device(x.device)
    return contextlib.nullcontext()


def _forward(
    features: Tensor,
    prototypes: Tensor,
    mu: float,
    eps: float,
    mu_tensor: Tensor | None,
    eps_tensor: Tensor | None,
    mask: Tensor | None,
    background: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pool features (B, n, d) by prototypes (m, d).

    Returns:
        Embedding (B, d), weights (B, n), attributes (B, m), and for the backward pass, in one
        tensor (B, n + d + m), the log-odds and the means of features and of assignments under the
        slopes.
    """
    out = _empty_outputs(features, prototypes)
    batch, n, d = features.shape
    m = prototypes.shape[0]
    if batch == 0:
        return out
    embedding, weights, attributes, saved = out
    blocks = _forward_blocks(n, m, d)
    w = prototypes.contiguous()
    strides = features.stride()
    has_mask, has_mu, has_eps = mask is not None, mu_tensor is not None, eps_tensor is not None
    tile = (blocks.rows, blocks.prototypes, blocks.channels, _precision())
    rest = 1.0 - mu
    with on_device_of(features):
        if blocks.tiles == 1:
            _POOL_IMAGE.launch(
                (batch, 1, 1),
                (features, *strides, w, mask, mu_tensor, eps_tensor, mu, rest, eps, n, m, d, *out),
                (has_mask, has_mu, has_eps, background, *tile), blocks.warps,
            )  # fmt: skip
            return out
        grid = (batch, blocks.tiles, 1)
        _TILE_LOG_SUMS.launch(
            grid, (features, *strides, w, mu_tensor, eps_tensor, eps, n, m, d, saved),
            (has_eps, *tile), blocks.warps,
        )  # fmt: skip
        slope = torch.empty_like(weights)
        sent = torch.empty_like(weights) if background else weights
        _SOLVE_IMAGE.launch(
            (batch, 1, 1),
            (mask, mu_tensor, eps_tensor, mu, rest, n, m, d, saved, weights, sent, slope),
            (has_mask, has_mu, background, blocks.features), 4 if blocks.features <= 2048 else 8,
        )  # fmt: skip
        parts = saved.new_empty(batch, blocks.tiles, 2, d + m)
        _TILE_SUMS.launch(
            grid,
            (
                features, *strides, w, mu_tensor, eps_tensor, eps, n, m, d,
                weights, sent, slope, parts,
            ),
            (has_eps, *tile), blocks.warps,
        )  # fmt: skip
        block = 128
        _TOTAL_SUMS.launch(
            (batch, triton.cdiv(2 * (d + m), block), 1),
            (parts, blocks.tiles, n, m, d, embedding, attributes, saved), (block,), 4,
        )  # fmt: skip
    return out


def _empty_outputs(
    features: Tensor, prototypes: Tensor, *settings: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, n, d = features.shape
    m = prototypes.shape[0]
    return (
        features.new_empty((batch, d)),
        features.new_empty((batch, n), dtype=torch.float32),
        features.new_empty((batch, m), dtype=torch.float32),
        features.new_empty((batch, n + d + m), dtype=torch.float32),
    )


def _backward(
    grad_embedding: Tensor | None,
    grad_weights: Tensor | None,
    grad_attributes: Tensor | None,
    features: Tensor,
    prototypes: Tensor,
    mu: float,
    eps: float,
    mu_tensor: Tensor | None,
    eps_tensor: Tensor | None,
    mask: Tensor | None,
    background: bool,
    saved: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the features, of the prototypes, and of (μ, ε) as one tensor of shape (2,)."""
    batch, n, d = features.shape
    m = prototypes.shape[0]
    blocks = _backward_blocks(n, m, d, few=batch <= BACKWARD_PROGRAMS // 2)
    w = prototypes.contiguous()
    grad_features = torch.empty_like(features)
    grad_prototypes = torch.empty_like(w)
    want_scalars = mu_tensor is not None or eps_tensor is not None
    programs = min(batch * blocks.tiles, BACKWARD_PROGRAMS)
    if programs == 0:
        return grad_features, grad_prototypes.zero_(), saved.new_zeros(2)
    # A program's part: the products (m, d), their weights (m), and two scalars.
    parts = saved.new_empty(programs, m * d + m + 2)
    ge, gw, gz = grad_embedding, grad_weights, grad_attributes
    if gw is not None:
        gw = gw.contiguous()
    ge_strides = (0, 0) if ge is None else ge.stride()
    gz_strides = (0, 0) if gz is None else gz.stride()
    precision = _precision()
    # Gradients of half-precision features are rounded to 8 or 11 bits: tf32's 11 lose nothing.
    rough = "tf32" if features.dtype != torch.float32 else precision
    with on_device_of(features):
        _TILE_GRADIENTS.launch(
            (programs, 1, 1),
            (
                features, *features.stride(), w, mask, mu_tensor, eps_tensor, mu, 1.0 - mu, eps,
                batch, blocks.tiles, n, m, d, saved, ge, *ge_strides, gw, gz, *gz_strides,
                grad_features, *grad_features.stride(), parts,
            ),
            (
                mask is not None, mu_tensor is not None, eps_tensor is not None, background,
                ge is not None, gw is not None, gz is not None, want_scalars,
                blocks.features, blocks.rows, blocks.prototypes, blocks.channels, precision, rough,
            ),
            blocks.warps,
        )  # fmt: skip
        _PROTOTYPE_GRADIENT.launch(
            (m, 1, 1), (w, parts, programs, m, d, grad_prototypes),
            (16, triton.next_power_of_2(d)), 4,
        )  # fmt: skip
    scalars = parts[:, -2:].sum(0) if want_scalars else saved.new_empty(2)
    return grad_features, grad_prototypes, scalars


def _backward_fake(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    features, prototypes = inputs[3:5]
    scalars = features.new_empty(2, dtype=torch.float32)
    return torch.empty_like(features), torch.empty_like(prototypes), scalars


class _SumPool(torch.autograd.Function):
    """Autograd kernel of the operator."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            out: tuple[Tensor, ...] = torch.ops.sumpool.sum_pool.default(*inputs)
        features, prototypes, ctx.mu, ctx.eps, mu_tensor, eps_tensor, mask, ctx.background = inputs
        ctx.save_for_backward(features, prototypes, mu_tensor, eps_tensor, mask, out[3])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(out[3])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        features, prototypes, mu_tensor, eps_tensor, mask, saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            to_features, to_prototypes, to_mu, to_eps = _differentiable_gradients(ctx, grads[:3])
        else:
            to_features, to_prototypes, scalars = torch.ops.sumpool.sum_pool_backward.default(
                *grads[:3], features, prototypes, ctx.mu, ctx.eps, mu_tensor, eps_tensor, mask,
                ctx.background, saved,
            )  # fmt: skip
            to_mu = None if mu_tensor is None else scalars[0].to(mu_tensor.dtype)
            to_eps = None if eps_tensor is None else scalars[1].to(eps_tensor.dtype)
        return to_features, to_prototypes, None, None, to_mu, to_eps, None, None


def _differentiable_gradients(
    ctx: Any, grads: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """Compute the same gradients as functions of the inputs, for a second derivative."""
    features, prototypes, mu_tensor, eps_tensor, mask, _ = ctx.saved_tensors
    mu = ctx.mu if mu_tensor is None else mu_tensor
    eps = ctx.eps if eps_tensor is None else eps_tensor
    attributes = grads[2] is not None
    out = plain_sum_pool(features, prototypes, mu, eps, mask, ctx.background, attributes)
    pairs = [(o, g) for o, g in zip(out, grads, strict=True) if o is not None and g is not None]
    inputs = (features, prototypes, mu_tensor, eps_tensor)
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    outputs, incoming = zip(*pairs, strict=True)
    outgoing = torch.autograd.grad(outputs, wanted, incoming, create_graph=True, allow_unused=True)
    gradient_of = {id(t): g for t, g in zip(wanted, outgoing, strict=True)}
    return tuple(gradient_of.get(id(t)) for t in inputs)


for _key in ("CPU", "CUDA"):  # on the CPU the kernels run in Triton's interpreter
    _LIBRARY.impl("sum_pool", _forward, _key)
    _LIBRARY.impl("sum_pool_backward", _backward, _key)
_LIBRARY.impl("sum_pool", _SumPool.apply, "Autograd")
torch.library.register_fake("sumpool::sum_pool", _empty_outputs, lib=_LIBRARY)
torch.library.register_fake("sumpool::sum_pool_backward", _backward_fake, lib=_LIBRARY)
sum_pool_op = torch.ops.sumpool.sum_pool.default
