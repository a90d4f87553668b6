"""SoftTriple's regularizer, which pulls the centers of a class together."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CenterDistances(nn.Module):
    r"""Distances among the centers of each class, :math:`\sum_c \sum_{i<j} d_{ij} / (C K (K - 1))`.

    With d the distance of the ℓ2-normalized centers, this is half their mean distance, as in
    [softtriple]. pytorch-metric-learning's SparseCentersRegularizer compares all centers and then
    selects those of the same class, at a cost of (C K)²: 51 GB on SOP.

    Args:
        centers_per_class: Number of centers K per class, at least 2.
    """

    def __init__(self, centers_per_class: int) -> None:
        super().__init__()
        self.centers_per_class = centers_per_class

    def forward(self, weights: Tensor) -> Tensor:
        """Return the regularizer of ``weights`` (C K, D), with the centers of a class adjacent."""
        count = self.centers_per_class
        centers = F.normalize(weights, dim=1).unflatten(0, (-1, count))  # (C, K, D)
        # Differences give a distance and gradient of 0 for equal centers and the diagonal.
        distances = torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.sum() / (2 * weights.shape[0] * (count - 1))
