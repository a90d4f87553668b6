"""Costs between features and prototypes: distances in the unit ball or cosine distances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sumpool.transport.validation import check_features, check_floating, solve_dtype

#: Squared norm above which the normalization affects gradients. It has a kink at 1, the norm of
#: vectors that are already normalized, such as prototypes after initialization: these count as
#: inside, whichever way their norm is rounded.
EDGE = 1 + 16 * torch.finfo(torch.float32).eps
#: Squared norm up to which a vector has no direction and is treated as 0.
DIRECTIONLESS = 1e-12


def lipschitz_normalize(x: Tensor) -> Tensor:
    r"""Scale vectors into the unit ball: ū = u / max(1, ‖u‖₂) along the last dimension.

    Vectors of norm at most 1 do not change, so the map is 1-Lipschitz and smooth at 0.

    Args:
        x: Vectors of shape (..., d), floating point.

    Returns:
        A tensor like ``x`` whose vectors have norm at most 1.

    Example:
        >>> lipschitz_normalize(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    check_floating("x", x)
    # max(1, ‖u‖) = √max(1, ‖u‖²), which is not singular at u = 0. In the dtype of the solver, since
    # the square overflows in half precision.
    wide = x.to(solve_dtype(x))
    return (wide * _scales(wide)[1]).to(x.dtype)


def prototype_costs(features: Tensor, prototypes: Tensor) -> Tensor:
    r"""Distances c_ji = ‖ω̄_i − f̄_j‖₂ between normalized features and prototypes.

    Computed by one matrix product. A squared distance below the rounding error of that product
    counts as 0, and the gradient at distance 0 is 0, never NaN.

    Args:
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ω of shape (m, d).

    Returns:
        Costs of shape (..., n, m) in float32, or in float64 if an input is float64.

    Example:
        >>> prototype_costs(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
        tensor([[1.4142, 0.0000]])
    """
    check_features(features, prototypes)
    dtype = solve_dtype(features, prototypes)
    with torch.autocast(features.device.type, enabled=False):
        cost: Tensor = _Costs.apply(features.to(dtype), prototypes.to(dtype))
    return cost


def cosine_costs(features: Tensor, prototypes: Tensor) -> Tensor:
    r"""Costs c_ji = 1 − cos(f_j, ω_i), independent of the norms of both vectors.

    A vector shorter than 1e-6 has no direction: its costs are 1 and its gradient is 0.

    Args:
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ω of shape (m, d).

    Returns:
        Costs in [0, 2] of shape (..., n, m), in the dtype of :func:`prototype_costs`.

    Example:
        >>> cosine_costs(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
        tensor([[1., 0.]])
    """
    check_features(features, prototypes)
    dtype = solve_dtype(features, prototypes)
    with torch.autocast(features.device.type, enabled=False):
        cost: Tensor = 1 - _directions(features.to(dtype)) @ _directions(prototypes.to(dtype)).mT
    return cost


def relative_norms(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Norms ‖f_j‖ relative to their mean in the image, of shape (..., n).

    Args:
        features: Local features of shape (..., n, d), 0 at invalid positions.
        mask: True for valid positions, (..., n), over which the mean is taken.

    Example:
        >>> relative_norms(torch.tensor([[3.0, 4.0], [15.0, 0.0]]))
        tensor([0.5000, 1.5000])
    """
    norms: Tensor = torch.linalg.vector_norm(features.to(solve_dtype(features)), dim=-1)
    count = norms.shape[-1] if mask is None else mask.sum(-1, keepdim=True)
    mean = norms.sum(-1, keepdim=True) / count
    return norms / mean.clamp_min(DIRECTIONLESS**0.5)


def _directions(x: Tensor) -> Tensor:
    square = torch.linalg.vecdot(x, x).unsqueeze(-1)
    return x * torch.where(square > DIRECTIONLESS, square.clamp_min(DIRECTIONLESS).rsqrt(), 0)


def _scales(x: Tensor) -> tuple[Tensor, Tensor]:
    """‖u‖² and 1/max(1, ‖u‖) of the vectors of ``x``, with a last dimension of 1."""
    square = torch.linalg.vecdot(x, x).unsqueeze(-1)
    return square, square.clamp_min(1).rsqrt()


class _Costs(torch.autograd.Function):
    """‖f̄_j − ω̄_i‖ by the expansion of the square, with gradient 0 at distance 0.

    The normalized vectors are never built: their norms are factors of a single matrix product. The
    backward pass consists of differentiable operations on the inputs and the output, so that it can
    be differentiated again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(f: Tensor, w: Tensor) -> Tensor:
        ff, inv_f = _scales(f)  # (..., n, 1)
        ww, inv_w = _scales(w)  # (m, 1)
        norms = ff * inv_f.square() + (ww * inv_w.square()).mT  # (..., n, m)
        square = torch.addcmul(norms, f @ (w * inv_w).mT, inv_f, value=-2)
        # The product's rounding error is a few ulps of the norms; anything below is distance 0.
        noise = norms * (16 * torch.finfo(f.dtype).eps)
        # Not in place: torch 2.11's compiler saves the wrong state of a modified output.
        return square.masked_fill(square <= noise, 0).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        f, w, cost = ctx.saved_tensors
        ff, inv_f = _scales(f)
        ww, inv_w = _scales(w)
        apart = cost > 0
        pull = torch.where(apart, grad, 0) / torch.where(apart, cost, 1)  # (..., n, m)
        scaled = pull * inv_f
        unit_w = w * inv_w
        # ∂L/∂f̄ = f̄ Σ pull − pull ω̄. Where the normalization acts, it removes the part along f̄.
        toward = scaled @ unit_w  # (..., n, d)
        rows = pull.sum(-1, keepdim=True)
        radial = ff * inv_f.square() * rows - (f * toward).sum(-1, keepdim=True)
        along = rows - torch.where(ff > EDGE, radial, 0)
        grad_f = f * (along * inv_f.square()) - toward
        # The same for the prototypes.
        pull, scaled = pull.reshape(-1, w.shape[0]), scaled.reshape(-1, w.shape[0])
        toward = scaled.mT @ f.reshape(-1, f.shape[-1])  # (m, d)
        columns = pull.sum(0).unsqueeze(-1)
        radial = ww * inv_w.square() * columns - (unit_w * toward).sum(-1, keepdim=True)
        along = columns - torch.where(ww > EDGE, radial, 0)
        grad_w = w * (along * inv_w.square()) - toward * inv_w
        return grad_f, grad_w
