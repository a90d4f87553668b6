"""WELDON pooling: the mean of the highest plus the mean of the lowest values."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled
from sumpool.transport.validation import check_at_least_one, solve_dtype


class Extremes(NamedTuple):
    """Result of :func:`mean_of_highest`.

    Attributes:
        mean: Mean of the selected values, (..., C).
        weights: Share of the selections at each position, (..., n).
    """

    mean: Tensor
    weights: Tensor


def mean_of_highest(features: Tensor, k: int, mask: Tensor | None = None) -> Extremes:
    """Mean of the k highest values of each channel, and their positions.

    If fewer than k features are valid, their mean. Ties are broken by ``torch.topk``.

    Args:
        features: Local features, (..., n, C), in float32 or float64.
        k: Number of values selected per channel.
        mask: True for valid features, (..., n); invalid ones are never selected.

    Returns:
        An :class:`Extremes`.

    Example:
        >>> out = mean_of_highest(torch.tensor([[1.0], [6.0], [4.0]]), 2)
        >>> out.mean, out.weights
        (tensor([5.]), tensor([0.0000, 0.5000, 0.5000]))
    """
    n = features.shape[-2]
    if mask is None:
        count = features.new_full((1, 1), n)
    else:
        features = features.masked_fill(~mask.unsqueeze(-1), -math.inf)
        count = mask.sum(-1).to(features.dtype)[..., None, None]  # (..., 1, 1)
    # Padded with k places, selected only where features are missing, so that k never exceeds n.
    values, places = F.pad(features, (0, 0, 0, k), value=-math.inf).topk(k, dim=-2)  # (..., k, C)
    # Valid places come first and have equal shares; the others have none.
    rank = torch.arange(k, device=features.device)[:, None]  # (k, 1)
    missing = rank >= count
    share = (1 / count.clamp(max=k)).masked_fill(missing, 0).expand_as(values)
    mean = (values.masked_fill(missing, 0) * share).sum(-2)
    weights = features.new_zeros((*features.shape[:-2], n + k))
    weights = weights.scatter_add(-1, places.flatten(-2), share.flatten(-2))
    return Extremes(mean, weights[..., :n] / features.shape[-1])


class _WeldonPool(GlobalPool):
    pool_type = "weldon"

    def __init__(
        self,
        k: int = 3,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(k=k)
        self.k = k

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Mean highest plus mean lowest values of valid ``features`` (B, n, C), per channel."""
        wide = features.to(solve_dtype(features))
        high = mean_of_highest(wide, self.k, mask)
        low = mean_of_highest(-wide, self.k, mask)
        embedding = (high.mean - low.mean).to(features.dtype)
        return Pooled(embedding, (high.weights + low.weights) / 2 if details else None, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"k={self.k}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"


class WeldonPool2d(_WeldonPool):
    r"""WELDON pooling of maps [weldon].

    Per channel c, with the values in descending order :math:`f_{(1)c} ≥ … ≥ f_{(n)c}`,

    .. math::
        g_c = \frac1k \sum_{i=1}^k f_{(i)c} + \frac1k \sum_{i=n-k+1}^n f_{(i)c},

    the mean of the highest values plus that of the lowest, which are evidence against a class. With
    fewer than k valid positions, k is their number; k = n gives twice the mean. The weight of a
    position is its share of the selections, at both ends and in all channels.

    Args:
        k: Number of values averaged at either end.
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> WeldonPool2d(k=1).pool(torch.tensor([[[[1.0, 5.0, 2.0]]]])).weights
        tensor([[[0.5000, 0.5000, 0.0000]]])
    """

    _formats = FORMATS_2D


class WeldonPool1d(_WeldonPool):
    """WELDON pooling of token sequences; arguments as in :class:`WeldonPool2d`."""

    _formats = FORMATS_1D
