"""Global maximum pooling."""

from __future__ import annotations

import math

from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled
from sumpool.transport.validation import solve_dtype


def maximum(features: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Largest value of each channel, :math:`g_c = \max_j f_{jc}`.

    Positions that share the maximum share its gradient.

    Args:
        features: Local features, (..., n, C).
        mask: True for valid features, (..., n); invalid ones are ignored, even if NaN.

    Returns:
        A tensor of shape (..., C).

    Example:
        >>> import torch
        >>> maximum(torch.tensor([[1.0, 5.0], [3.0, 4.0]]))
        tensor([3., 5.])
    """
    if mask is not None:
        features = features.masked_fill(~mask.unsqueeze(-1), -math.inf)
    return features.amax(-2)


def maximum_shares(features: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Share of the channels whose maximum each position holds.

    .. math::
        w_j = \frac1C \sum_c \frac{[f_{jc} = g_c]}{\#\{i : f_{ic} = g_c\}}

    Args:
        features: Local features, (..., n, C).
        mask: True for valid features, (..., n); invalid ones have weight 0.

    Returns:
        A tensor of shape (..., n), without gradient, that sums to 1 over its last dimension.

    Example:
        >>> import torch
        >>> maximum_shares(torch.tensor([[1.0, 5.0], [3.0, 4.0], [3.0, 0.0]]))
        tensor([0.5000, 0.2500, 0.2500])
    """
    features = features.detach()
    held = features == maximum(features, mask).unsqueeze(-2)  # (..., n, C)
    if mask is not None:
        held = held & mask.unsqueeze(-1)
    held = held.to(solve_dtype(features))
    return (held / held.sum(-2, keepdim=True)).mean(-1)


class _GlobalMaxPool(GlobalPool):
    pool_type = "gmp"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Maximum of ``features`` (B, n, C) over valid positions, per channel."""
        weights = maximum_shares(features, mask) if details else None
        return Pooled(maximum(features, mask), weights, None)


class GlobalMaxPool2d(_GlobalMaxPool):
    r"""Global maximum pooling (GMP) of maps: :math:`g_c = \max_j f_{jc}`.

    The weight of a position is the share of the channels whose maximum it holds.

    Args:
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> import torch
        >>> GlobalMaxPool2d().pool(torch.tensor([[[[1.0, 3.0]], [[6.0, 2.0]]]]))
        Pooled(embedding=tensor([[3., 6.]]), weights=tensor([[[0.5000, 0.5000]]]), attributes=None)
    """

    _formats = FORMATS_2D


class GlobalMaxPool1d(_GlobalMaxPool):
    """GMP of token sequences; arguments as in :class:`GlobalMaxPool2d`."""

    _formats = FORMATS_1D
