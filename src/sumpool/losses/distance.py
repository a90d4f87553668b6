"""Euclidean distances that are accurate near 0."""

from __future__ import annotations

import torch
from pytorch_metric_learning.distances import LpDistance
from torch import Tensor

#: Maximum number of elements in the backward pass of the direct form: 256 MiB in float32.
DIRECT_LIMIT = 2**26


class DirectDistance(LpDistance):  # type: ignore[misc]
    """ℓ2 distances computed from the differences of the vectors.

    pytorch-metric-learning lets ``torch.cdist`` compute ‖x‖² + ‖y‖² − 2x·y for more than 25 rows.
    In float32 this gives equal vectors a distance of 3e-4, a non-zero term of a contrastive loss.
    Differences give exactly 0, with a gradient of 0. Inputs beyond ``DIRECT_LIMIT``, such as
    large memories, use the product form after all.
    """

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        """Return the distances between the rows of ``query_emb`` and ``ref_emb``."""
        held = query_emb.shape[0] * ref_emb.shape[0] * query_emb.shape[1]
        direct = "donot_use_mm_for_euclid_dist"
        fast = "use_mm_for_euclid_dist_if_necessary"
        mode = direct if held <= DIRECT_LIMIT else fast
        return torch.cdist(query_emb, ref_emb, compute_mode=mode)
