"""The regulariser of SoftTriple: centres of a class that agree are pulled together."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CenterDistances(nn.Module):
    r"""Distances among the centres of each class, :math:`\sum_c \sum_{i<j} d_{ij} / (C K (K - 1))`.

    With d the distance of the ℓ2-normalised centres: half their mean distance, as in [softtriple].
    pytorch-metric-learning's SparseCentersRegularizer compares all centres with all others and
    keeps what belongs to a class, at a cost of (C K)²: 51 GB on SOP.

    Args:
        centers_per_class: Centres K of a class, at least 2.
    """

    def __init__(self, centers_per_class: int) -> None:
        super().__init__()
        self.centers_per_class = centers_per_class

    def forward(self, weights: Tensor) -> Tensor:
        """The regulariser of ``weights`` (C K, D), the centres of a class being neighbours."""
        count = self.centers_per_class
        centers = F.normalize(weights, dim=1).unflatten(0, (-1, count))  # (C, K, D)
        # Of equal centres, and of a centre with itself, distance and gradient are 0.
        distances = torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.sum() / (2 * weights.shape[0] * (count - 1))
