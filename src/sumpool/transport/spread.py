"""Spread of weights over positions, and the smoothing for a given spread."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sumpool.transport.solve import partial_transport

#: Search range of ε: weights are practically equal at one end and those of P1 at the other.
EPS_RANGE = (1e-3, 1e5)
#: Relative tolerance of the spread.
TOLERANCE = 1e-3


def spread_of(weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Effective share of positions covered by the weights, 1/(n Σ_j p_j²), of shape (...).

    Args:
        weights: Weights p that sum to 1, (..., n).
        mask: True for valid positions, (..., n); n counts only these.

    Example:
        >>> spread_of(torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]]))
        tensor([1.0000, 0.5000])
    """
    count = weights.shape[-1] if mask is None else mask.expand(weights.shape).sum(-1)
    return 1 / (count * weights.square().sum(-1))


@torch.no_grad()
def eps_for_spread(
    cost: Tensor, mu: float | Tensor, spread: float, mask: Tensor | None = None
) -> float:
    """Find the ε at which weights have a given mean spread, by bisection on its logarithm.

    The spread measures sharpness independently of the scale of the costs and the size of the map:
    the mean over images of :func:`spread_of` falls from 1 (ε → 0, equal weights) to that of P1
    (ε → ∞, about μ).

    Args:
        cost: Costs of shape (B, n, m), of many images.
        mu: Share μ in (0, 1], a number or a tensor of shape () or (B,).
        spread: Target mean spread, in (0, 1).
        mask: True for valid features, (B, n).

    Returns:
        ε, at which the mean spread is within 0.1% of ``spread``.

    Raises:
        ValueError: If ``spread`` is not in (0, 1), or no ε reaches it.

    Example:
        >>> cost = torch.linspace(0, 1, 50).reshape(1, 50, 1)
        >>> eps = eps_for_spread(cost, mu=0.1, spread=0.25)
        >>> spread_of(partial_transport(cost, 0.1, eps).weights)
        tensor([0.25...])
    """
    if not 0 < spread < 1:
        raise ValueError(f"spread must lie in (0, 1), got {spread}")

    def found(log_eps: float) -> float:
        weights = partial_transport(cost, mu, math.exp(log_eps), mask=mask).weights
        return float(spread_of(weights, mask).mean())

    low, high = map(math.log, EPS_RANGE)
    least = found(high)
    if not least < spread:
        raise ValueError(
            f"spread must lie above {least:.3g}, which the sharpest weights have with mu = "
            f"{float(torch.as_tensor(mu).mean()):g} on these costs, got {spread}"
        )
    while True:
        middle = (low + high) / 2
        now = found(middle)
        if abs(now - spread) <= TOLERANCE * spread or high - low < 1e-9:
            return math.exp(middle)
        low, high = (middle, high) if now > spread else (low, middle)
