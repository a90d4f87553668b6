"""Contrastive losses that count every pair."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning import losses
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
from torch import Tensor


class ContrastiveLoss(losses.ContrastiveLoss):  # type: ignore[misc]
    """The contrastive loss of pytorch-metric-learning, without its shortcut.

    That one gives 0 where there is at most one positive and one negative pair, as there is for a
    single image before a memory that has only just begun to fill.
    """

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> Any:
        """The terms of all pairs, positive and negative ones apart, before they are reduced."""
        pairs = convert_to_pairs(indices_tuple, labels, ref_labels)
        return self.loss_method(self.distance(embeddings, ref_emb), pairs)
