"""The sum of average and maximum pooling."""

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
from sumpool.pooling.maximum import maximum, maximum_shares
from sumpool.transport.validation import solve_dtype


class _AverageMaxPool(GlobalPool):
    pool_type = "gap+gmp"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Mean plus maximum of ``features`` (B, n, C) over valid positions, per channel."""
        wide = features.to(solve_dtype(features))
        embedding = (masked_mean(wide, mask) + maximum(wide, mask)).to(features.dtype)
        if not details:
            return Pooled(embedding, None, None)
        weights = (equal_weights(wide, mask) + maximum_shares(wide, mask)) / 2
        return Pooled(embedding, weights, None)


class AverageMaxPool2d(_AverageMaxPool):
    r"""Average plus maximum pooling (GAP+GMP) of maps [proxy-anchor].

    .. math::
        g_c = \frac1n \sum_j f_{jc} + \max_j f_{jc}

    The weight of a position is the mean of 1/n, its weight in average pooling, and the share of
    channels whose maximum it holds.

    Args:
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> import torch
        >>> AverageMaxPool2d().pool(torch.tensor([[[[1.0, 3.0]]]]))
        Pooled(embedding=tensor([[5.]]), weights=tensor([[[0.2500, 0.7500]]]), attributes=None)
    """

    _formats = FORMATS_2D


class AverageMaxPool1d(_AverageMaxPool):
    """GAP+GMP of token sequences; arguments as in :class:`AverageMaxPool2d`."""

    _formats = FORMATS_1D
