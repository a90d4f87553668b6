"""Global average pooling, the baseline."""

from __future__ import annotations

from torch import Tensor

from sumpool.pooling.base import (
    FORMATS_1D,
    FORMATS_2D,
    GlobalPool,
    Pooled,
    equal_weights,
    masked_mean,
)


class _GlobalAveragePool(GlobalPool):
    pool_type = "gap"
    # The vector is the same either way; "before" makes the mapped local features available.
    linear_map = "before"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Average ``features`` (B, n, C) over valid positions."""
        weights = equal_weights(features, mask) if details else None
        return Pooled(masked_mean(features, mask), weights, None)


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
