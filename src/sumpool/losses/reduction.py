"""The pairs of a batch, and reductions of their terms to a scalar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pytorch_metric_learning.reducers import AvgNonZeroReducer, BaseReducer
from torch import Tensor


def all_pairs(labels: Tensor, ref_labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return masks (b, r) of the positive and negative pairs of a batch with ``ref_labels``.

    None compares the batch with itself, without pairs of an image with itself.
    """
    others = labels if ref_labels is None else ref_labels.to(labels.device)
    positive = labels[:, None] == others
    negative = ~positive
    if ref_labels is None:
        positive = positive & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return positive, negative


def nonzero_mean(terms: Tensor, pairs: Tensor) -> Tensor:
    """Return the mean of the positive ``terms`` (b, r) of ``pairs``; 0 without any."""
    terms = torch.where(pairs, terms.relu(), 0.0)
    return terms.sum() / (terms > 0).sum().clamp(min=1)


class ImageSumReducer(BaseReducer):  # type: ignore[misc]
    """The sum of the terms of all pairs, divided by the number of images in the batch.

    This is the reduction in the public implementation of the cross-batch memory [xbm], from which
    [gsp] and [thesis] take C1. pytorch-metric-learning's PerAnchorReducer averages over the pairs
    of each image and cannot compare a batch with a memory.
    """

    def pos_pair_reduction(
        self, losses: Tensor, loss_indices: Any, embeddings: Tensor, labels: Tensor
    ) -> Tensor:
        """Return the sum of the terms of positive, or negative, pairs over the number of images."""
        return losses.sum() / embeddings.shape[0]

    neg_pair_reduction = pos_pair_reduction


#: The reductions of ``sumpool.losses.constants.REDUCTIONS``, by name.
REDUCERS: Mapping[str, Callable[[], BaseReducer]] = {
    "nonzero-mean": AvgNonZeroReducer,
    "image-sum": ImageSumReducer,
}
