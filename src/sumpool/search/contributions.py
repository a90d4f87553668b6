"""What each position adds to an embedding, for the poolings that are sums over positions."""

from __future__ import annotations

import torch
from torch import Tensor

from sumpool.models import Embedder
from sumpool.pooling import GlobalPool
from sumpool.search.queries import QueryError

#: The pooled vector is a multiple of Σ_j w_j f_j with the weights that the pooling reports.
_WEIGHTED_SUMS = ("gap", "gsp", "delf")


def can_explain(pooling: GlobalPool) -> bool:
    """Whether what each position adds can be told for this pooling."""
    return pooling.pool_type in _WEIGHTED_SUMS


@torch.no_grad()
def contributions(model: Embedder, features: Tensor, mask: Tensor | None = None) -> Tensor:
    """What each position adds to the embedding before normalization.

    Args:
        model: The model.
        features: Local features of one image, as :meth:`Embedder.feature_map` gives them.
        mask: The positions that count.

    Returns:
        A tensor (n, D) in float64 whose sum over positions is the embedding, up to a factor.

    Raises:
        QueryError: If the pooling is not such a sum; names those that are.
    """
    pooling = model.pooling
    if not can_explain(pooling):
        raise QueryError(
            f"the pooling {pooling.pool_type} is no weighted sum of local features, so that a "
            f"match cannot be split over positions; {', '.join(_WEIGHTED_SUMS)} are"
        )
    weights = pooling.pool(features, mask).weights
    assert weights is not None
    tokens = pooling.to_tokens(features)[0][0].double()  # (n, C)
    parts = weights.reshape(-1, 1).double() * tokens
    if mask is not None:
        parts = parts.masked_fill(~mask.reshape(-1, 1), 0)
    if pooling.linear_map == "after":
        (matrix,) = model.map.parameters()
        parts = parts @ matrix.double().T
    return parts
