"""Multi-head GSP: each part of the embedding selects its own features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled, zero_invalid
from sumpool.pooling.generalized_sum import GeneralizedSumPool2d, _GeneralizedSumPool
from sumpool.pooling.mapped_sum import forwards_to
from sumpool.pooling.prototypes import split_embedding
from sumpool.transport import eps_for_spread, partial_transport, prototype_costs, sum_pool
from sumpool.transport.validation import check_at_least_one


@forwards_to(GeneralizedSumPool2d)
class _MultiHeadSumPool(_GeneralizedSumPool):
    pool_type = "gsp-heads"

    def __init__(self, channels: int, heads: int = 4, **options: Any) -> None:
        check_at_least_one(channels=channels)
        split_embedding(channels, "heads", heads)
        only = {
            "cost": "ball",
            "share": "fixed",
            "mix": None,
            "learn_mix": False,
            "background": False,
        }
        for name, value in only.items():
            if options.get(name, value) != value:
                raise ValueError(f"{name} must be {value!r} with heads, got {options[name]!r}")
        super().__init__(channels, **options)
        self.heads = heads

    def split(self, features: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Split features and prototypes into (B, n, C/H) and (m, C/H) for each head."""
        parts = features.chunk(self.heads, -1), self.prototypes.chunk(self.heads, -1)
        return tuple(zip(*parts, strict=True))

    def eps_for(self, spread: float, features: Tensor, mask: Tensor | None) -> float:
        """Find one ε for all heads; the mean spread is over images and heads."""
        cost = torch.cat([prototype_costs(*part) for part in self.split(features)])
        mask = None if mask is None else mask.repeat(self.heads, 1)
        return eps_for_spread(cost, self.mu, spread, mask)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C), each part of the channels by the transport of its head."""
        if self.averaging:
            self.check_channels(features)
        else:
            self.prepare(features, mask)
        features = zero_invalid(features, mask)
        share = 1.0 if self.averaging else self.mu
        found = [
            sum_pool(
                *part,
                share,
                self.eps,
                mask=mask,
                solver=self.solver,
                attributes=details,
                fused=self.fused,
            )
            for part in self.split(features)
        ]
        attributes = [it.attributes for it in found if it.attributes is not None]
        return Pooled(
            torch.cat([it.embedding for it in found], -1),
            torch.stack([it.weights for it in found]).mean(0),
            torch.stack(attributes).mean(0) if details else None,
        )

    def assignments(self, local: Tensor, mask: Tensor | None) -> Tensor:
        """Pooled mass from each position to each prototype, (B, n, m), averaged over heads."""
        found = []
        for part in self.split(local):
            cost = prototype_costs(*part)
            result = partial_transport(cost, self.mu, self.eps, mask=mask, solver=self.solver)
            found.append(result.pooled_plan())
        return torch.stack(found).mean(0)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"{super().extra_repr()}, heads={self.heads}"


class MultiHeadSumPool2d(_MultiHeadSumPool):
    r"""Multi-head generalized sum pooling: each part of the channels selects its own features.

    Features and prototypes are split into H parts of C/H channels. Part h of the embedding is

    .. math::
        g^h = \sum_j p^h_j f^h_j ,

    where the weights p^h are those of :class:`GeneralizedSumPool2d` for the parts of features and
    prototypes, with one μ and one ε for all heads. One part of the embedding may look at the head
    of a bird while another looks at its wing. One head is GSP; μ = 1 is average pooling for any
    number of heads. Weights and attributes are means over heads, since the embedding is a weighted
    sum of features in each part, not as a whole.

    Args:
        channels: Channels C of the input, a multiple of ``heads``.
        heads: Number H of heads.
        **options: Further arguments of :class:`GeneralizedSumPool2d`, except those that change its
            costs, shares or weights.

    Example:
        >>> layer = MultiHeadSumPool2d(8, heads=2, prototypes=4)
        >>> out = layer.pool(torch.randn(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]), torch.Size([2, 4]))
    """

    _formats = FORMATS_2D


class MultiHeadSumPool1d(_MultiHeadSumPool):
    """Multi-head GSP of token sequences; arguments as in :class:`MultiHeadSumPool2d`."""

    _formats = FORMATS_1D
