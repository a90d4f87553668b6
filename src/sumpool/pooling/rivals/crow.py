"""CroW pooling: cross-dimensional weighting of positions and channels."""

from __future__ import annotations

import torch
from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import check_positive, solve_dtype


def spatial_weights(features: Tensor) -> Tensor:
    r"""CroW's spatial weights [crow].

    .. math::
        w_j = \sqrt{S_j / \lVert S \rVert_2}, \qquad S_j = \sum_c f_{jc}

    Positions without activation have weight 0, and gradient 0 although the root is steep there: the
    features that the weight multiplies are 0 as well.

    Args:
        features: Non-negative local features, (..., n, C).

    Returns:
        A tensor of shape (..., n).

    Example:
        >>> spatial_weights(torch.tensor([[3.0, 0.0], [2.0, 2.0], [0.0, 0.0]]))
        tensor([0.7746, 0.8944, 0.0000])
    """
    activation = features.sum(-1)  # (..., n)
    # Relative to the largest activation, so that squares neither overflow nor vanish.
    largest = activation.detach().amax(-1, keepdim=True)
    ratio = activation / torch.where(largest > 0, largest, 1)
    active = ratio > 0
    square = ratio.square().sum(-1, keepdim=True)  # at least 1, or 0 in an empty map
    share = torch.where(active, ratio, 1) / torch.where(largest > 0, square, 1).sqrt()
    return torch.where(active, share.sqrt(), 0)


def channel_weights(features: Tensor, mask: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    r"""CroW's channel weights, an inverse frequency of activation [crow].

    .. math::
        I_c = \log \frac{C ε + \sum_k Q_k}{ε + Q_c}, \qquad
        Q_c = \frac1n \#\{j : f_{jc} > 0\}

    Args:
        features: Non-negative local features, (..., n, C).
        mask: True for valid features, (..., n); invalid ones must be 0 and do not count in n.
        eps: ε > 0, which bounds the weight of channels that are never active.

    Returns:
        A tensor of shape (..., C), without gradient since counts have none.

    Example:
        >>> channel_weights(torch.tensor([[3.0, 0.0], [2.0, 2.0]]))
        tensor([0.4055, 1.0986])
    """
    active = (features.detach() > 0).to(features.dtype)
    count = features.shape[-2] if mask is None else mask.sum(-1, keepdim=True)
    rate = active.sum(-2) / count + eps  # (..., C)
    return rate.sum(-1, keepdim=True).log() - rate.log()


class _CrowPool(GlobalPool):
    pool_type = "crow"

    def __init__(
        self,
        eps: float = 1e-6,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_positive(eps=eps)
        self.eps = float(eps)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Weighted sum of the positive part of valid ``features`` (B, n, C)."""
        wide = features.to(solve_dtype(features))
        wide = zero_invalid(wide, mask)
        wide = wide.relu()
        spatial = spatial_weights(wide)  # (B, n)
        total = (wide * spatial.unsqueeze(-1)).sum(-2)
        embedding = (total * channel_weights(wide, mask, self.eps)).to(features.dtype)
        return Pooled(embedding, _shares(spatial, mask) if details else None, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"eps={self.eps}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"


def _shares(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Divide ``weights`` (B, n) by their sum; uniform in a map without activation."""
    valid = torch.ones_like(weights) if mask is None else mask.to(weights.dtype)
    weights = torch.where(weights.sum(-1, keepdim=True) > 0, weights, valid)
    return weights / weights.sum(-1, keepdim=True)


class CrowPool2d(_CrowPool):
    r"""Cross-dimensional weighting (CroW) of maps [crow].

    For the positive part of the features, :math:`f_{jc} ≥ 0`,

    .. math::
        g_c = I_c \sum_j \sqrt{S_j / \lVert S \rVert_2}\, f_{jc}, \qquad S_j = \sum_c f_{jc}, \quad
        I_c = \log \frac{C ε + \sum_k Q_k}{ε + Q_c},

    with :math:`Q_c` the share of valid positions at which channel c is active. A single channel has
    :math:`I = 0`. The weights of the positions are :math:`\sqrt{S_j}` divided by their sum (uniform
    if nothing is active).

    Args:
        eps: ε > 0 in the channel weights.
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> out = CrowPool2d().pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class CrowPool1d(_CrowPool):
    """CroW pooling of token sequences; arguments as in :class:`CrowPool2d`."""

    _formats = FORMATS_1D
