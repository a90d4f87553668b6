"""Contrastive losses over all pairs, without device synchronization."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
from torch import Tensor

from sumpool.losses.reduction import ImageSumReducer, all_pairs, nonzero_mean


class ContrastiveLoss(losses.ContrastiveLoss):  # type: ignore[misc]
    """The contrastive loss of pytorch-metric-learning, as one expression over all pairs.

    The original lists the pairs, which synchronizes with the device several times per step, and
    returns 0 for at most one positive and one negative pair, as for a single image and a memory
    that has just begun to fill. Here all pairs form one masked matrix, and the step can be captured
    as a CUDA graph. Pairs from a miner are still listed.
    """

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch against itself or ``ref_emb``; see :class:`MetricLoss`."""
        if indices_tuple is not None:
            return super().forward(  # type: ignore[no-any-return]
                embeddings, labels, indices_tuple, ref_emb, ref_labels
            )
        distances = self.distance(embeddings, ref_emb)  # (b, r)
        positive, negative = all_pairs(labels, ref_labels)
        margin = self.distance.margin
        total = self._reduce(margin(distances, self.pos_margin), positive)
        return total + self._reduce(margin(self.neg_margin, distances), negative)

    def _reduce(self, terms: Tensor, pairs: Tensor) -> Tensor:
        if isinstance(self.reducer.reducers["pos_loss"], ImageSumReducer):
            return torch.where(pairs, terms.relu(), 0.0).sum() / len(terms)
        return nonzero_mean(terms, pairs)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> Any:
        """Return the separate positive and negative terms of the pairs from a miner."""
        pairs = convert_to_pairs(indices_tuple, labels, ref_labels)
        return self.loss_method(self.distance(embeddings, ref_emb), pairs)
