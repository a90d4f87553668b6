"""Feed of collages composed on the device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from sumpool.data.base import ImageDataset, ImageSubset
from sumpool.data.feeds.batches import Batch, ImageFeed
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.synthetic.collage import CifarCollages
from sumpool.data.views.preprocessing import Preprocessing


class CollageFeed(ImageFeed):
    """Feed that keeps only the tiles in memory, on the device, and composes collages there.

    The arguments are those of :class:`ImageFeed`; :func:`shows_collages` must be true for them.
    """

    def __init__(
        self, dataset: ImageDataset, preprocessing: Preprocessing, device: torch.device, seed: int
    ) -> None:
        super().__init__(dataset, preprocessing, device, seed)
        collages = _collages(dataset)
        if collages is None or not shows_collages(dataset, preprocessing):
            raise ValueError("dataset must be CIFAR collages, shown whole by preprocessing")
        self._collages = collages
        self._numbers = dataset.indices if isinstance(dataset, ImageSubset) else None
        self._tiles = collages.tiles.to(device)

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Yield the sampler's batches, randomly mirrored, see :meth:`ImageFeed.train_batches`."""
        self._check_sampler(sampler)
        side = self.preprocessing.crop
        for step in itertools.count(start):
            indices, draws = self._local_draws(sampler, step)
            sizes = np.full((len(indices), 2), side)
            _, flips = self.preprocessing.train_boxes(sizes, draws)
            yield self._batch(torch.from_numpy(indices), torch.from_numpy(flips))

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Yield collages in the given order, see :meth:`ImageFeed.test_batches`."""
        for part in self._split(indices, batch_size):
            yield self._batch(part, None)

    def _batch(self, indices: Tensor, flips: Tensor | None) -> Batch:
        numbers = indices if self._numbers is None else self._numbers[indices]
        images = self._collages.compose(numbers, self._tiles)
        if flips is not None:
            mirrored = flips.to(self.device)[:, None, None, None]
            images = torch.where(mirrored, images.flip(-1), images)
        labels = self.dataset.labels[indices].to(self.device)
        return Batch(self.preprocessing.normalize(images), labels, indices)


def shows_collages(dataset: ImageDataset, preprocessing: Preprocessing) -> bool:
    """Whether ``dataset`` has collages and ``preprocessing`` neither crops nor resizes them."""
    collages = _collages(dataset)
    if collages is None or preprocessing.augment != "none":
        return False
    side = collages.tiles.shape[-1] * (2 if collages.whole else 1)
    return preprocessing.crop == side and preprocessing.resize in (None, side)


def _collages(dataset: ImageDataset) -> CifarCollages | None:
    source = dataset.parent if isinstance(dataset, ImageSubset) else dataset
    return source if isinstance(source, CifarCollages) else None
