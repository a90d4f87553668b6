"""Generalized-mean pooling (GeMean): between average and maximum, with a learned exponent."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled
from sumpool.transport.validation import check_positive, solve_dtype

#: Lower bound of a learned exponent, which is a tensor.
LEAST_EXPONENT = 0.01
#: Least value of an image after :func:`above_least`.
LEAST = 1e-6


def generalized_mean(
    features: Tensor,
    p: float | Tensor,
    mask: Tensor | None = None,
    floor: float = 1e-6,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Generalized mean of local features, per channel [gem, eq. 3].

    .. math::
        g_c = \Big(\frac1n \sum_{j=1}^n \max(f_{jc}, δ)^p\Big)^{1/p}

    computed from logarithms without forming powers, so that float32 handles any p and any magnitude
    of features. It is the mean of positive features at p = 1 and tends to their maximum as p grows.
    Computed in float32, or float64 for float64 features; the result has the dtype of the features.

    Args:
        features: Local features, (..., n, C).
        p: Exponent, positive; a number or a tensor that broadcasts to (..., C). Tensors, which are
            learned exponents, are clamped to at least 0.01.
        mask: True for valid features, (..., n); invalid ones are ignored, even if NaN.
        floor: Lower bound δ > 0 of the features, below which the gradient is 0.
        weights: Weights that sum to 1, (..., n), instead of 1/n; 0 where the mask is False.

    Returns:
        A tensor of shape (..., C).

    Example:
        >>> generalized_mean(torch.tensor([[1.0], [7.0]]), 1.0)
        tensor([4.])
        >>> generalized_mean(torch.tensor([[1.0], [7.0]]), 2.0)
        tensor([5.])
    """
    logs = _logarithms(features, mask, floor)
    p = _exponent(p, logs)
    exponents = _exponents(logs, p, mask)
    if weights is not None:
        least = torch.finfo(logs.dtype).tiny
        exponents = exponents + weights.to(logs.dtype).clamp_min(least).log().unsqueeze(-1)
        return (exponents.logsumexp(-2) / p).exp().to(features.dtype)
    total = exponents.logsumexp(-2)  # (..., C)
    if mask is None:
        count = logs.new_full((), features.shape[-2])
    else:
        count = mask.sum(-1, keepdim=True).to(logs.dtype)
    return ((total - count.log()) / p).exp().to(features.dtype)


def generalized_mean_shares(
    features: Tensor, p: float | Tensor, mask: Tensor | None = None, floor: float = 1e-6
) -> Tensor:
    r"""Share of each position in the sums of :func:`generalized_mean`, averaged over channels.

    .. math::
        w_j = \frac1C \sum_c \frac{\max(f_{jc}, δ)^p}{\sum_i \max(f_{ic}, δ)^p}

    Args:
        features: Local features, (..., n, C).
        p: Exponent, as in :func:`generalized_mean`.
        mask: True for valid features, (..., n); invalid ones have weight 0.
        floor: Lower bound δ > 0 of the features.

    Returns:
        A non-negative tensor of shape (..., n) that sums to 1 over its last dimension.

    Example:
        >>> generalized_mean_shares(torch.tensor([[1.0], [3.0]]), 1.0)
        tensor([0.2500, 0.7500])
    """
    logs = _logarithms(features, mask, floor)
    return _exponents(logs, _exponent(p, logs), mask).softmax(-2).mean(-1)


def above_least(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Shift ``values`` (B, n, C) so that the least valid value of each image is 10⁻⁶.

    Args:
        values: Local features of any sign.
        mask: True for valid features, (B, n).

    Example:
        >>> above_least(torch.tensor([[[-1.0], [2.0]]])).round().flatten()
        tensor([0., 3.])
    """
    valid = values if mask is None else values.masked_fill(~mask.unsqueeze(-1), math.inf)
    return values - valid.amin((1, 2), keepdim=True) + LEAST


def _logarithms(features: Tensor, mask: Tensor | None, floor: float) -> Tensor:
    features = features.to(solve_dtype(features))
    if mask is not None:
        features = features.masked_fill(~mask.unsqueeze(-1), 1)  # even NaN
    return features.clamp(min=floor).log()


def _exponent(p: float | Tensor, logs: Tensor) -> float | Tensor:
    # A learned exponent must not cross 0, where the mean is undefined.
    return p.to(logs.dtype).clamp_min(LEAST_EXPONENT) if isinstance(p, Tensor) else p


def _exponents(logs: Tensor, p: float | Tensor, mask: Tensor | None) -> Tensor:
    """log max(f, δ)^p, and −∞ at invalid positions."""
    p = p.unsqueeze(-2) if isinstance(p, Tensor) and p.ndim else p  # (..., 1, C)
    exponents = logs * p
    return exponents if mask is None else exponents.masked_fill(~mask.unsqueeze(-1), -math.inf)


class _GeneralizedMeanPool(GlobalPool):
    pool_type = "gemean"

    def __init__(
        self,
        p: float = 3.0,
        *,
        learn_p: bool = True,
        floor: float = 1e-6,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_positive(p=p, floor=floor)
        self.floor = float(floor)
        self._p = float(p)
        self.p = nn.Parameter(torch.empty((), device=device, dtype=dtype), requires_grad=learn_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the exponent to its initial value."""
        with torch.no_grad():
            self.p.fill_(self._p)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Generalized mean of ``features`` (B, n, C) over valid positions."""
        embedding = generalized_mean(features, self.p, mask, self.floor)
        weights = generalized_mean_shares(features, self.p, mask, self.floor) if details else None
        return Pooled(embedding, weights, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        learned = " (learned)" if self.p.requires_grad else ""
        return f"p={self._p}{learned}, floor={self.floor}, input_fmt={self.input_fmt!r}"


class GeneralizedMeanPool2d(_GeneralizedMeanPool):
    r"""Generalized-mean pooling (GeMean) of maps [gem].

    Per channel c over the n valid positions, with one exponent p for all channels,

    .. math::
        g_c = \Big(\frac1n \sum_j \max(f_{jc}, δ)^p\Big)^{1/p}.

    p = 1 is average pooling of positive features, large p tends to maximum pooling. The weights
    of the positions are their shares in the sum, averaged over channels. Intended for non-negative
    features: values below δ are clamped to δ.

    Args:
        p: Initial exponent, positive.
        learn_p: Whether the exponent is learned.
        floor: Lower bound δ > 0 of the features.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> layer = GeneralizedMeanPool2d()
        >>> out = layer.pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape, layer.p.item()
        (torch.Size([2, 8]), torch.Size([2, 7, 7]), 3.0)
    """

    _formats = FORMATS_2D


class GeneralizedMeanPool1d(_GeneralizedMeanPool):
    """GeMean pooling of token sequences; arguments as in :class:`GeneralizedMeanPool2d`."""

    _formats = FORMATS_1D
