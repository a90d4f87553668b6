"""GMP+GSP: the sum of maximum pooling and GSP on mapped features."""

from __future__ import annotations

from torch import Tensor

from sumpool.pooling.affine import mapped
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled, zero_invalid
from sumpool.pooling.mapped_sum import MappedSumPool
from sumpool.pooling.maximum import maximum


class _MaximumSumPool(MappedSumPool):
    pool_type = "gmp+gsp"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Mapped maximum of ``features`` (B, n, C) plus GSP of the mapped features."""
        features = zero_invalid(features, mask)
        out = self.gsp.pool_tokens(self.mapped(features), mask, details)
        strongest = mapped(self.map, maximum(features, mask))  # (B, D)
        return Pooled((strongest + out.embedding).to(features.dtype), out.weights, out.attributes)


class MaximumSumPool2d(_MaximumSumPool):
    r"""Maximum and generalized sum pooling (GMP+GSP) of feature maps [gsp].

    With one linear map W without bias for both parts,

    .. math::
        g = W \max_j f_j + \sum_j p_j W f_j ,

    where the maximum is taken per channel over valid positions and p are the weights of
    :class:`GeneralizedSumPool2d` on the mapped features W f_j. Weights and attributes are those of
    GSP. At μ = 1 the embedding is W (max + mean).

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0.
        **options: Further arguments of :class:`GeneralizedSumPool2d`; ``init="k-center"`` picks the
            prototypes among mapped features.

    Example:
        >>> import torch
        >>> layer = MaximumSumPool2d(32, embedding_size=16, prototypes=4)
        >>> out = layer.pool(torch.randn(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 16]), torch.Size([2, 7, 7]), torch.Size([2, 4]))
    """

    _formats = FORMATS_2D


class MaximumSumPool1d(_MaximumSumPool):
    """GMP+GSP of token sequences; arguments as in :class:`MaximumSumPool2d`."""

    _formats = FORMATS_1D
