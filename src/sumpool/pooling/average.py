"""Global average pooling, the baseline."""

from __future__ import annotations

from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import solve_dtype


class _GlobalAveragePool(GlobalPool):
    pool_type = "gap"
    # Before or after is the same vector; before, the mapped local features can be looked at.
    linear_map = "before"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """The mean of ``features`` (B, n, C) over the valid ones, each with the same weight."""
        if mask is None and not details:
            return Pooled(features.mean(1), None, None)
        if mask is None:
            share = features.new_full((), 1 / features.shape[1], dtype=solve_dtype(features))
            return Pooled(features.mean(1), share.expand(features.shape[:2]), None)
        weights = mask.to(solve_dtype(features)) / mask.sum(-1, keepdim=True)
        local = zero_invalid(features, mask)
        embedding = (weights.to(features.dtype).unsqueeze(1) @ local).squeeze(1)
        return Pooled(embedding, weights, None)


class GlobalAveragePool2d(_GlobalAveragePool):
    """Global average pooling (GAP) of maps: the mean over valid positions.

    Args:
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> import torch
        >>> GlobalAveragePool2d()(torch.tensor([[[[1.0, 3.0]]]]))
        tensor([[2.]])
    """

    _formats = FORMATS_2D


class GlobalAveragePool1d(_GlobalAveragePool):
    """GAP of token sequences; arguments as in :class:`GlobalAveragePool2d`."""

    _formats = FORMATS_1D
