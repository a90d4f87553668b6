"""GMP+GSP: what is strongest anywhere, and what the prototypes select."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled
from sumpool.pooling.mapped_sum import MappedSumPool


class _MaximumSumPool(MappedSumPool):
    pool_type: ClassVar[str] = "gmp+gsp"

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """The mapped maximum of ``features`` (B, n, C), and GSP of the mapped ones."""
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), 0)  # whatever stands there
        out = self.gsp.pool_tokens(self.mapped(features), mask, details)
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), -math.inf)
        strongest = self.map(features.amax(1))  # (B, D)
        return Pooled((strongest + out.embedding).to(features.dtype), out.weights, out.attributes)


class MaximumSumPool2d(_MaximumSumPool):
    r"""Maximum and generalized sum pooling (GMP+GSP) of feature maps [gsp].

    With one linear map W without bias for both parts,

    .. math::
        g = W \max_j f_j + \sum_j p_j W f_j ,

    where the maximum is taken channel by channel over the valid positions and p are the weights of
    :class:`GeneralizedSumPool2d` on the mapped features W f_j. Weights and attributes are those of
    GSP. At μ = 1 it is W (max + mean).

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0.
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        background: Reverse the roles: the prototypes describe what is left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels: None where they apply, True or False.
        init: "k-center" sets the prototypes from the mapped features of the first training batch,
            before the first step; "random" leaves them as drawn.
        seed: Seed of the prototypes' initialization.
        flatten: Whether the embedding is (B, D) or keeps the pooled dimensions as 1.
        input_fmt: "NCHW" (default) or "NHWC".
        num_prefix_tokens: Must be 0 for maps.
        device: Where the parameters are put.
        dtype: Dtype of the parameters.

    Example:
        >>> import torch
        >>> layer = MaximumSumPool2d(32, embedding_size=16, prototypes=4)
        >>> out = layer.pool(torch.randn(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 16]), torch.Size([2, 7, 7]), torch.Size([2, 4]))
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_2D


class MaximumSumPool1d(_MaximumSumPool):
    """Maximum and generalized sum pooling of token sequences; see :class:`MaximumSumPool2d`.

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each sequence that is pooled.
        eps: Inverse smoothing ε > 0.
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        background: Reverse the roles: the prototypes describe what is left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels: None where they apply, True or False.
        init: "k-center" or "random".
        seed: Seed of the prototypes' initialization.
        flatten: Whether the embedding is (B, D) or keeps the pooled dimension as 1.
        input_fmt: "NLC" (default) or "NCL".
        num_prefix_tokens: Leading tokens that are dropped.
        device: Where the parameters are put.
        dtype: Dtype of the parameters.

    Example:
        >>> import torch
        >>> layer = MaximumSumPool1d(32, prototypes=4, num_prefix_tokens=1)
        >>> layer(torch.randn(2, 50, 32)).shape
        torch.Size([2, 128])
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_1D
