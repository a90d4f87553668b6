"""Random erasing of training views [random-erasing]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumpool.data.feeds.batches import Batch, ImageFeed
from sumpool.data.random_streams import ERASING
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.views.boxes import random_boxes, view_draws

#: Ranges of the erased share of a view and of its width-to-height ratio [random-erasing].
AREA, ASPECT = (0.02, 0.4), (0.3, 1 / 0.3)


class ErasingFeed(ImageFeed):
    """Wrapper of a feed that erases a random rectangle of training views.

    Rectangles are set to 0, the mean color of normalized pixels. Like the views, they depend only
    on the seed, the step and the position in the batch.

    Args:
        feed: The feed to wrap; its test batches are unchanged.
        probability: Probability that a training view has a rectangle erased, in [0, 1].
    """

    def __init__(self, feed: ImageFeed, probability: float) -> None:
        super().__init__(feed.dataset, feed.preprocessing, feed.device, feed.seed)
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {probability}")
        self.feed = feed
        self.probability = probability

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Yield the feed's training batches with erasing, see :meth:`ImageFeed.train_batches`."""
        first = sampler.rank * sampler.local_size
        batches: Any = self.feed.train_batches(sampler, start)
        with closing(batches):
            for step, batch in enumerate(batches, start):
                yield batch._replace(images=self._erased(batch.images, step, first))

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Yield the feed's test batches, see :meth:`ImageFeed.test_batches`."""
        return self.feed.test_batches(indices, batch_size)

    def close(self) -> None:
        """Terminate idle worker processes of the feed."""
        self.feed.close()

    def _erased(self, images: Tensor, step: int, first: int) -> Tensor:
        count, _, height, width = images.shape
        draws = view_draws(self.seed, step, first, count, ERASING)
        low, high = (share * height * width for share in AREA)
        boxes = random_boxes(np.tile([height, width], (count, 1)), draws, (low, high), ASPECT)
        boxes[draws[:, -1] >= self.probability] = 0  # the spare number of each view
        top, left, tall, wide = torch.from_numpy(boxes).to(images.device).T[..., None]  # (b, 1)
        down = torch.arange(height, device=images.device)
        across = torch.arange(width, device=images.device)
        rows, columns = (
            (down >= top) & (down < top + tall),
            (across >= left) & (across < left + wide),
        )
        return images.masked_fill((rows[:, :, None] & columns[:, None])[:, None], 0.0)
