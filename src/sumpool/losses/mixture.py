"""The weighted sum of a base loss and the zero-shot loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.losses.metric_loss import proxies_of
from sumpool.transport.validation import check_floating, is_number, solve_dtype


class Mixture(nn.Module):
    """The mixture (1 − λ) L + λ L_ZS of a base loss and the zero-shot loss [gsp].

    Args:
        base: L, called as ``base(embeddings, labels)``: from :func:`build_loss`, or any loss of
            pytorch-metric-learning.
        zero_shot: L_ZS, called as ``zero_shot(attributes, labels)``.
        weight: λ in [0, 1].

    Example:
        >>> from sumpool.losses import ZeroShotLoss, build_loss
        >>> base = build_loss("c2", num_classes=10, embedding_size=8)
        >>> loss = Mixture(base, ZeroShotLoss(10, 8), weight=0.1)
        >>> embeddings, attributes = torch.eye(4, 8), torch.eye(4, 6)
        >>> parts = loss.components(embeddings, torch.tensor([0, 0, 1, 1]), attributes)
        >>> sorted(parts)
        ['base_loss', 'loss', 'zero_shot_loss']
    """

    def __init__(self, base: nn.Module, zero_shot: nn.Module, weight: float) -> None:
        super().__init__()
        if not (is_number(weight) and 0 <= weight <= 1):
            raise ValueError(f"weight must be a number in [0, 1], got {weight!r}")
        self.base = base
        self.zero_shot = zero_shot
        self.weight = weight

    def components(
        self,
        embeddings: Tensor,
        labels: Tensor,
        attributes: Tensor | None,
        indices_tuple: Any = None,
    ) -> dict[str, Tensor]:
        """Return the mixed loss as "loss", and its terms as "base_loss" and "zero_shot_loss".

        A base loss with a memory counts each call as a step: call either this or the module.

        Args:
            embeddings: Shape (b, D).
            labels: Integers of shape (b,).
            attributes: Pseudo-attributes of the same images, (b, m).
            indices_tuple: Pairs or triplets from a miner, for the base loss.
        """
        if attributes is None:
            raise ValueError(
                "attributes must be a tensor of shape (b, m), got None: the pooling has none, and "
                "the zero-shot loss needs those of a generalized sum pooling"
            )
        check_floating("embeddings", embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            base = self.base(embeddings.to(solve_dtype(embeddings)), labels, indices_tuple)
            zero_shot = self.zero_shot(attributes, labels)
            total = (1 - self.weight) * base + self.weight * zero_shot
        return {"loss": total, "base_loss": base, "zero_shot_loss": zero_shot}

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        attributes: Tensor | None,
        indices_tuple: Any = None,
    ) -> Tensor:
        """Return the mixed loss, a scalar; arguments as in :meth:`components`."""
        return self.components(embeddings, labels, attributes, indices_tuple)["loss"]

    def proxy_parameters(self) -> list[nn.Parameter]:
        """Return the proxies of the base loss."""
        return proxies_of(self.base)

    def centers(self) -> Tensor:
        """Return the proxies of the base loss, (C, K, D)."""
        centers: Tensor = self.base.centers()  # type: ignore[operator]
        return centers

    def extra_repr(self) -> str:
        """Return the weight for the module's repr."""
        return f"weight={self.weight}"
