"""Plain path of generalized sum pooling: costs, transport and one product, in torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.transport.costs import prototype_costs
from sumpool.transport.solve import Solver, partial_transport


class SumPooled(NamedTuple):
    """Result of :func:`sum_pool`.

    Attributes:
        embedding: Σ_j p_j f_j of shape (..., d).
        weights: Pooling weights of shape (..., n); they sum to 1.
        attributes: Pseudo-attributes z of shape (..., m); they sum to 1. None if not requested.
    """

    embedding: Tensor
    weights: Tensor
    attributes: Tensor | None


def plain_sum_pool(
    features: Tensor,
    prototypes: Tensor,
    mu: float | Tensor,
    eps: float | Tensor,
    mask: Tensor | None,
    background: bool,
    attributes: bool,
    solver: str | Solver = "exact",
    cost: Tensor | None = None,
) -> SumPooled:
    """:func:`sum_pool` in torch operations; invalid features must be finite."""
    # Copying a strided view once is cheaper than three products with it.
    features = features.contiguous()
    if cost is None:
        cost = prototype_costs(features, prototypes)
    result = partial_transport(cost, mu, eps, mask=mask, solver=solver)
    weights = result.background_weights if background else result.weights  # (..., n)
    embedding = weighted_sum(weights, features)
    z = result.attributes if attributes else None
    return SumPooled(embedding.to(features.dtype), weights, z)


def weighted_sum(weights: Tensor, features: Tensor) -> Tensor:
    """Σ_j p_j f_j (..., d) of ``features`` (..., n, d), in the dtype of ``weights`` (..., n)."""
    with torch.autocast(features.device.type, enabled=False):
        return (weights.unsqueeze(-2) @ features.to(weights.dtype)).squeeze(-2)
