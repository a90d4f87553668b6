"""The regularizer of SoftTriple: centers of a class that agree are pulled together."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CenterDistances(nn.Module):
    r"""Distances among the centers of each class, :math:`\sum_c \sum_{i<j} d_{ij} / (C K (K - 1))`.

    With d the distance of the ℓ2-normalized centers: half their mean distance, as in [softtriple].
    pytorch-metric-learning's SparseCentersRegularizer compares all centers with all others and
    keeps what belongs to a class, at a cost of (C K)²: 51 GB on SOP.

    Args:
        centers_per_class: Centers K of a class, at least 2.
    """

    def __init__(self, centers_per_class: int) -> None:
        super().__init__()
        self.centers_per_class = centers_per_class

    def forward(self, weights: Tensor) -> Tensor:
        """The regularizer of ``weights`` (C K, D), the centers of a class being neighbors."""
        count = self.centers_per_class
        centers = F.normalize(weights, dim=1).unflatten(0, (-1, count))  # (C, K, D)
        # Of equal centers, and of a center with itself, distance and gradient are 0.
        distances = torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.sum() / (2 * weights.shape[0] * (count - 1))
