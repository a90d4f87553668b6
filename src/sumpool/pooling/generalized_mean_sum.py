"""GeMean+GSP: the generalized mean of features weighted by GSP."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import mapped
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled, zero_invalid
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.pooling.mapped_sum import MappedSumPool, forwards_to
from sumpool.transport.validation import check_one_of, check_positive

#: Quantities that the weights of GSP can multiply.
WEIGHED = ("features", "powers")


@forwards_to(MappedSumPool)
class _GeneralizedMeanSumPool(MappedSumPool):
    pool_type = "gemean+gsp"

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        prototypes: int = 64,
        mu: float = 0.3,
        eps: float = 5.0,
        p: float = 3.0,
        *,
        learn_p: bool = True,
        floor: float = 1e-6,
        weigh: str = "features",
        **options: Any,
    ) -> None:
        check_positive(p=p, floor=floor)
        check_one_of(WEIGHED, weigh=weigh)
        super().__init__(channels, embedding_size, prototypes, mu, eps, **options)
        self.floor = float(floor)
        self.weigh = weigh
        self._p = float(p)
        self.p = nn.Parameter(self.map.weight.new_full((), self._p), requires_grad=learn_p)

    def reset_parameters(self) -> None:
        """Reinitialize the map and the prototypes; reset the exponent to its initial value."""
        super().reset_parameters()
        with torch.no_grad():
            self.p.fill_(self._p)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Map the generalized mean of ``features`` (B, n, C), weighted by GSP."""
        features = zero_invalid(features, mask)
        out = self.gsp.pool_tokens(self.mapped(features), mask, details)
        assert out.weights is not None  # GSP always has weights
        local = features.to(out.weights.dtype)
        if self.weigh == "powers":
            mean = generalized_mean(local, self.p, mask, self.floor, out.weights)  # (B, C)
        else:
            count = features.shape[1] if mask is None else mask.sum(-1, keepdim=True)
            weighed = (count * out.weights).unsqueeze(-1) * local
            mean = generalized_mean(weighed, self.p, mask, self.floor)  # (B, C)
        embedding = mapped(self.map, mean.to(features.dtype))
        return Pooled(embedding.to(features.dtype), out.weights, out.attributes)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        learned = " (learned)" if self.p.requires_grad else ""
        own = f"p={self._p}{learned}, floor={self.floor}, weigh={self.weigh!r}"
        return f"{own}, {super().extra_repr()}"


class GeneralizedMeanSumPool2d(_GeneralizedMeanSumPool):
    r"""Generalized mean of feature maps weighted by GSP (GeMean+GSP) [gsp] [gem].

    With the weights p of :class:`GeneralizedSumPool2d` on the mapped features W f_j and one
    exponent q,

    .. math::
        g = W h, \qquad h_c = \Big(\frac1n \sum_j \max(n p_j f_{jc}, δ)^q\Big)^{1/q} .

    W is a linear map without bias, the same in both places. Weights and attributes are those of
    GSP. At μ = 1 all weights are 1/n, which gives the mapped generalized mean. Intended for
    non-negative features.

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0.
        p: Initial exponent q of the generalized mean, positive.
        learn_p: Whether the exponent is learned.
        floor: Lower bound δ > 0 of the weighted features.
        weigh: Whether to weight the "features", as above, or their "powers", for the power mean
            h_c = (Σ_j p_j max(f_jc, δ)^q)^(1/q).
        **options: Further arguments of :class:`GeneralizedSumPool2d`; ``init="k-center"`` picks the
            prototypes among mapped features.

    Example:
        >>> layer = GeneralizedMeanSumPool2d(32, embedding_size=16, prototypes=4)
        >>> out = layer.pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape, layer.p.item()
        (torch.Size([2, 16]), torch.Size([2, 7, 7]), 3.0)
    """

    _formats = FORMATS_2D


class GeneralizedMeanSumPool1d(_GeneralizedMeanSumPool):
    """GeMean+GSP of token sequences; arguments as in :class:`GeneralizedMeanSumPool2d`."""

    _formats = FORMATS_1D
