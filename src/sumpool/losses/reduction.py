"""Reductions of the terms of pairs to a scalar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytorch_metric_learning.reducers import AvgNonZeroReducer, BaseReducer
from torch import Tensor


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
