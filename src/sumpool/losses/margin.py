"""The margin loss: contrastive, with a learned distance boundary per class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.losses.distance import DirectDistance
from sumpool.losses.reduction import all_pairs, nonzero_mean


class MarginLoss(nn.Module):
    r"""Contrastive loss with a margin α around a learned distance β per class [margin-loss].

    With β of the first image's class, the terms are :math:`[d - β + α]_+` for positive and
    :math:`[β + α - d]_+` for negative pairs. The loss is the mean of the non-zero positive terms,
    plus that of the non-zero negative terms, plus ν times the mean β of the batch.
    pytorch-metric-learning's MarginLoss counts a pair once per triplet that contains it.

    Args:
        num_classes: Number of classes C; labels lie in 0..C − 1.
        alpha: Margin α.
        beta: Initial β.
        nu: Weight ν ≥ 0; positive values keep β small.
        distance: Distance of embeddings; None for the distance of ℓ2-normalized embeddings.

    Attributes:
        boundaries: β of each class, (C,).
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.2,
        beta: float = 1.2,
        nu: float = 0.0,
        distance: DirectDistance | None = None,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.nu = nu
        self.distance = DirectDistance() if distance is None else distance
        self.boundaries = nn.Parameter(torch.full((num_classes,), float(beta)))

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch against itself or ``ref_emb``, without ``indices_tuple``."""
        if indices_tuple is not None:
            raise ValueError("indices_tuple must be None: the margin loss takes all pairs")
        positive, negative = all_pairs(labels, ref_labels)
        beta = self.boundaries[labels]
        beyond = self.distance(embeddings, ref_emb) - beta[:, None]  # (b, r)
        total = nonzero_mean(self.alpha + beyond, positive)
        total = total + nonzero_mean(self.alpha - beyond, negative)
        return total + self.nu * beta.mean()
