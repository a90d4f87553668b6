"""GSP in parts: one vector per prototype instead of their sum."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled, zero_invalid
from sumpool.pooling.mapped_sum import MappedSumPool, forwards_to
from sumpool.pooling.prototypes import residual_sums
from sumpool.transport.plain import weighted_sum
from sumpool.transport.validation import check_at_least_one

#: Default number of prototypes, and so of parts.
PARTS = 16


@forwards_to(MappedSumPool)
class _SumPartsPool(MappedSumPool):
    pool_type = "gsp-parts"

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        prototypes: int = PARTS,
        mu: float = 0.3,
        eps: float = 5.0,
        *,
        dim: int = 64,
        with_sum: bool = False,
        **options: Any,
    ) -> None:
        check_at_least_one(embedding_size=embedding_size, dim=dim)
        if options.get("fused"):
            raise ValueError("fused must be None or False: the kernels do not give parts")
        super().__init__(channels, dim, prototypes, mu, eps, **options)
        self.embedding_size, self.with_sum = embedding_size, with_sum
        inputs = prototypes * dim + (channels if with_sum else 0)
        weight = self.map.weight
        self.project = nn.Linear(
            inputs, embedding_size, bias=False, device=weight.device, dtype=weight.dtype
        )

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C) per prototype and project the parts."""
        if self.averaging:
            raise ValueError("averaging must be False for gsp-parts, which needs prototypes")
        features = zero_invalid(features, mask)
        local = self.mapped(features)  # (B, n, d)
        self.gsp.prepare(local, mask)
        result = self.gsp.transport(local, mask)
        weights = result.background_weights if self.background else result.weights
        weights = self.gsp.mixed(weights, local, mask)  # (B, n)
        parts = residual_sums(weights.unsqueeze(-1) * result.assignment(), local, self.prototypes)
        pooled = F.normalize(parts, dim=-1).flatten(1)  # (B, m·d)
        if self.with_sum:
            whole = F.normalize(weighted_sum(weights, features), dim=-1)
            pooled = torch.cat((pooled, whole), -1)  # (B, m·d + C)
        with torch.autocast(features.device.type, enabled=False):
            embedding = affine(self.project, pooled).to(features.dtype)
        return Pooled(embedding, weights, result.attributes if details else None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"with_sum={self.with_sum}, {super().extra_repr()}"


class SumPartsPool2d(_SumPartsPool):
    r"""Generalized sum pooling of feature maps in parts, one per prototype.

    With the plan π of :class:`GeneralizedSumPool2d` on mapped features W f_j, prototype i collects

    .. math::
        V_i = \sum_j \pi_{ij} (W f_j - \omega_i) ,

    and the embedding is a linear map of V_1/‖V_1‖, …, V_m/‖V_m‖. NetVLAD [netvlad] collects the
    residuals of all features in this way; here most of an image can be left out. Weights and
    attributes are those of GSP. Neither map has a bias.

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is transported.
        eps: Inverse smoothing ε > 0.
        dim: Channels d of the mapped features W f and the prototypes.
        with_sum: Whether to project the sum Σ_j p_j f_j, scaled to norm 1, as well.
        **options: Further arguments of :class:`GeneralizedSumPool2d`; ``init="k-center"`` picks the
            prototypes among mapped features, ``mix`` also mixes the plan, and ``fused`` must not be
            True.

    Example:
        >>> layer = SumPartsPool2d(32, embedding_size=16, prototypes=4, dim=8)
        >>> out = layer.pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 16]), torch.Size([2, 7, 7]), torch.Size([2, 4]))
    """

    _formats = FORMATS_2D


class SumPartsPool1d(_SumPartsPool):
    """GSP in parts of token sequences; arguments as in :class:`SumPartsPool2d`."""

    _formats = FORMATS_1D
