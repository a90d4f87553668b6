"""Costs: distances between Lipschitz-normalised features and prototypes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sumpool.transport.checks import check_features, check_floating, solve_dtype


def lipschitz_normalize(x: Tensor) -> Tensor:
    r"""Scale vectors into the unit ball: ū = u / max(1, ‖u‖₂) along the last dimension.

    Vectors of norm at most 1 are left as they are, so the map is 1-Lipschitz and smooth at 0.

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
    # max(1, ‖u‖) = √max(1, ‖u‖²): written so, nothing is singular at u = 0.
    return x * x.square().sum(-1, keepdim=True).clamp_min(1).rsqrt()


def prototype_costs(features: Tensor, prototypes: Tensor) -> Tensor:
    r"""Distances c_ji = ‖ω̄_i − f̄_j‖₂ between normalised features and prototypes.

    Computed by one matrix product. A squared distance below the rounding error of that product
    counts as 0, and the gradient at distance 0 is 0, never NaN.

    Args:
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ω of shape (m, d).

    Returns:
        Costs of shape (..., n, m) in float32, or in float64 where an input is float64.

    Example:
        >>> prototype_costs(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 5.0]]))
        tensor([[1.4142, 0.0000]])
    """
    check_features(features, prototypes)
    dtype = solve_dtype(features, prototypes)
    with torch.autocast(features.device.type, enabled=False):
        f = lipschitz_normalize(features.to(dtype))
        w = lipschitz_normalize(prototypes.to(dtype))
        cost: Tensor = _Distance.apply(f, w)  # type: ignore[no-untyped-call]
    return cost


class _Distance(torch.autograd.Function):
    """‖f_j − ω_i‖ by the expansion of the square, with gradient 0 at distance 0.

    The backward pass is written in differentiable operations of the saved inputs and output, so
    that it can be differentiated again.
    """

    @staticmethod
    def forward(f: Tensor, w: Tensor) -> Tensor:
        norms = f.square().sum(-1, keepdim=True) + w.square().sum(-1)  # (..., n, m)
        square = norms - 2 * (f @ w.mT)
        # Rounding of the product is a few ulps of the two norms; what lies below is distance 0.
        noise = 16 * torch.finfo(f.dtype).eps
        return torch.where(square > noise * norms, square, 0).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        f, w, cost = ctx.saved_tensors
        apart = cost > 0
        pull = torch.where(apart, grad, 0) / torch.where(apart, cost, 1)  # (..., n, m)
        grad_f = f * pull.sum(-1, keepdim=True) - pull @ w
        pull, f = pull.reshape(-1, pull.shape[-1]), f.reshape(-1, f.shape[-1])
        grad_w = w * pull.sum(0).unsqueeze(-1) - pull.mT @ f
        return grad_f, grad_w
