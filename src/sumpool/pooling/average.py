"""Global average pooling, the baseline."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled
from sumpool.transport.validation import solve_dtype


class _GlobalAveragePool(GlobalPool):
    pool_type: ClassVar[str] = "gap"
    # Before or after is the same vector; before, the mapped local features can be looked at.
    linear_map: ClassVar[Literal["before", "after", "inside"]] = "before"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """The mean of ``features`` (B, n, C) over the valid ones, each with the same weight."""
        if mask is None and not details:
            return Pooled(features.mean(1), None, None)
        if mask is None:
            share = features.new_full((), 1 / features.shape[1], dtype=solve_dtype(features))
            return Pooled(features.mean(1), share.expand(features.shape[:2]), None)
        weights = mask.to(solve_dtype(features)) / mask.sum(-1, keepdim=True)
        features = features.masked_fill(~mask.unsqueeze(-1), 0)  # whatever stands there
        embedding = (weights.to(features.dtype).unsqueeze(1) @ features).squeeze(1)
        return Pooled(embedding, weights, None)


class GlobalAveragePool1d(_GlobalAveragePool):
    """Global average pooling (GAP) of token sequences: the mean of the valid tokens.

    Args:
        flatten: Whether the embedding is (B, C) or keeps the pooled dimension as 1.
        input_fmt: "NLC" (default) or "NCL".
        num_prefix_tokens: Leading tokens that are dropped.

    Example:
        >>> import torch
        >>> GlobalAveragePool1d()(torch.tensor([[[1.0], [3.0]]]))
        tensor([[2.]])
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_1D


class GlobalAveragePool2d(_GlobalAveragePool):
    """Global average pooling (GAP) of maps: the mean over valid positions.

    Args:
        flatten: Whether the embedding is (B, C) or keeps the pooled dimensions as 1.
        input_fmt: "NCHW" (default) or "NHWC".

    Example:
        >>> import torch
        >>> GlobalAveragePool2d()(torch.tensor([[[[1.0, 3.0]]]]))
        tensor([[2.]])
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_2D
