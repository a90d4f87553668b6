"""Gradient norms of two losses at the local features, and a weight that balances them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sumpool.losses import Mixture


class GradientNorms(NamedTuple):
    """Both losses of a mixture on a batch, and their gradient norms at the local features.

    Attributes:
        base_loss: L.
        zero_shot_loss: L_ZS.
        base: ‖∇L‖.
        zero_shot: ‖∇L_ZS‖.
    """

    base_loss: float
    zero_shot_loss: float
    base: float
    zero_shot: float

    def ratio(self, weight: float) -> float:
        """Return ‖λ ∇L_ZS‖ / ‖(1 − λ) ∇L‖ for the weight λ."""
        return weight * self.zero_shot / max((1 - weight) * self.base, 1e-12)

    def weight(self, ratio: float) -> float:
        """Return the weight λ for which the gradients have this ratio.

        Example:
            >>> norms = GradientNorms(1.0, 70.0, 0.5, 20.0)
            >>> round(norms.ratio(norms.weight(0.7)), 6)
            0.7
        """
        return ratio * self.base / max(self.zero_shot + ratio * self.base, 1e-12)


def measure_gradient_norms(
    pooling: nn.Module,
    criterion: Mixture,
    features: Tensor,
    labels: Tensor,
    *,
    embed: Callable[[Tensor], Tensor],
) -> GradientNorms:
    """Measure both losses on a batch, and the norms of their gradients at ``features``.

    Args:
        pooling: A pooling with attributes and initialized prototypes.
        criterion: The two losses; their state does not change.
        features: Local features of the batch, the input of the pooling.
        labels: Classes 0..C−1, (b,).
        embed: Maps pooled features to the input of the base loss.
    """
    measured = copy.deepcopy(criterion)  # a memory of past batches must not see this one
    features = features.detach().float().requires_grad_()
    with torch.enable_grad():
        pooled = pooling.pool(features)  # type: ignore[operator]
        base = measured.base(embed(pooled.embedding), labels)
        other = measured.zero_shot(pooled.attributes, labels)
        (of_base,) = torch.autograd.grad(base, features, retain_graph=True)
        (of_other,) = torch.autograd.grad(other, features)
    return GradientNorms(base.item(), other.item(), of_base.norm().item(), of_other.norm().item())
