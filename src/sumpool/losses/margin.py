"""The margin loss: contrastive, with a boundary between near and far that every class learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.losses.distance import DirectDistance


class MarginLoss(nn.Module):
    r"""Pairs on the wrong side of a learned distance β, less a margin α [margin-loss].

    With β that of the class of the first image, the terms are :math:`[d - β + α]_+` for positive
    and :math:`[β + α - d]_+` for negative pairs. The loss is the mean of the non-zero terms of
    either kind, added, and ν times the mean β of the batch. pytorch-metric-learning's MarginLoss
    counts a pair once for every triplet that it is in.

    Args:
        num_classes: Classes C; labels lie in 0..C − 1.
        alpha: α.
        beta: Where β starts.
        nu: ν ≥ 0; more than 0 keeps β small.
        distance: Distances of embeddings; None brings them to length 1 first.

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
        """The loss of a batch, with itself or with ``ref_emb``; ``indices_tuple`` must be None."""
        if indices_tuple is not None:
            raise ValueError("indices_tuple must be None: the margin loss takes all pairs")
        others = labels if ref_labels is None else ref_labels.to(labels.device)
        distances = self.distance(embeddings, ref_emb)  # (b, r)
        positive = labels[:, None] == others
        counted = positive
        if ref_emb is None:  # an image is no pair with itself
            counted = positive & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        beta = self.boundaries[labels]
        apart = distances - beta[:, None]
        total = _mean_above(self.alpha + apart, counted) + _mean_above(
            self.alpha - apart, ~positive
        )
        return total + self.nu * beta.mean()


def _mean_above(terms: Tensor, pairs: Tensor) -> Tensor:
    terms = torch.where(pairs, terms.relu(), 0.0)
    return terms.sum() / (terms > 0).sum().clamp(min=1)
