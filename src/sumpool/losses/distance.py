"""Euclidean distances that are right at and near 0."""

from __future__ import annotations

import torch
from pytorch_metric_learning.distances import LpDistance
from torch import Tensor

#: Most numbers that the backward pass of the direct form may hold: 256 MiB of float32.
DIRECT_LIMIT = 2**26


class DirectDistance(LpDistance):  # type: ignore[misc]
    """ℓ2 distances of ℓ2-normalized vectors, from their differences.

    pytorch-metric-learning lets ``torch.cdist`` go through ‖x‖² + ‖y‖² − 2x·y where there are more
    than 25 rows. In float32 that puts equal vectors 3e-4 apart, which then count as a non-zero term
    of a contrastive loss. Differences give 0, and a gradient of 0. Against memories so large that
    the differences take much space the product is used after all.
    """

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        """Distances of the rows of ``query_emb`` and ``ref_emb``."""
        held = query_emb.shape[0] * ref_emb.shape[0] * query_emb.shape[1]
        direct = "donot_use_mm_for_euclid_dist"
        fast = "use_mm_for_euclid_dist_if_necessary"
        mode = direct if held <= DIRECT_LIMIT else fast
        return torch.cdist(query_emb, ref_emb, compute_mode=mode)
