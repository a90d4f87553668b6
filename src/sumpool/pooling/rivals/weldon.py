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
    """What :func:`mean_of_highest` returns.

    Attributes:
        mean: The mean of the selected values, (..., C).
        weights: The share of the selections that fall on each position, (..., n).
    """

    mean: Tensor
    weights: Tensor


def mean_of_highest(features: Tensor, k: int, mask: Tensor | None = None) -> Extremes:
    """The mean of the k highest values of each channel, and where they are.

    Where fewer than k features are valid, it is the mean of those. Of equal values, which ones are
    selected is up to torch.

    Args:
        features: Local features, (..., n, C), in float32 or float64.
        k: How many values are selected per channel.
        mask: True for valid features, (..., n); the others are never selected.

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
    # k places more, which are selected only where features are missing: k never exceeds n.
    values, places = F.pad(features, (0, 0, 0, k), value=-math.inf).topk(k, dim=-2)  # (..., k, C)
    # The first places are the valid ones; each has the same share, the others none.
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
        """Highest and lowest values of ``features`` (B, n, C) over the valid ones, per channel."""
        wide = features.to(solve_dtype(features))
        high = mean_of_highest(wide, self.k, mask)
        low = mean_of_highest(-wide, self.k, mask)
        embedding = (high.mean - low.mean).to(features.dtype)
        return Pooled(embedding, (high.weights + low.weights) / 2 if details else None, None)

    def extra_repr(self) -> str:
        """What the layer is, for ``print``."""
        return f"k={self.k}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"


class WeldonPool2d(_WeldonPool):
    r"""WELDON pooling of maps [weldon].

    Per channel c, with the values in descending order :math:`f_{(1)c} ≥ … ≥ f_{(n)c}`,

    .. math::
        g_c = \frac1k \sum_{i=1}^k f_{(i)c} + \frac1k \sum_{i=n-k+1}^n f_{(i)c},

    the highest values and the lowest, which speak against a class. With fewer than k valid
    positions k is their number; at k = n this is twice the mean. The weight of a position is its
    share of the selections, over highest and lowest and all channels.

    Args:
        k: How many values are averaged at either end.
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> WeldonPool2d(k=1).pool(torch.tensor([[[[1.0, 5.0, 2.0]]]])).weights
        tensor([[[0.5000, 0.5000, 0.0000]]])
    """

    _formats = FORMATS_2D


class WeldonPool1d(_WeldonPool):
    """WELDON pooling of token sequences; arguments as in :class:`WeldonPool2d`."""

    _formats = FORMATS_1D
