"""Batches cut out of decoded images."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.base import ImageDataset
from sumpool.data.feeds.batches import Batch, ImageFeed
from sumpool.data.feeds.cache import DecodedImages
from sumpool.data.feeds.threads import map_ahead
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.views.boxes import view_draws
from sumpool.data.views.crops import Crops, choose_crops
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.data.views.resample import Window

#: Batches that are prepared in advance on the host.
_AHEAD = 2


class _Prepared(NamedTuple):
    indices: Tensor
    labels: Tensor
    crops: Any


class CachedFeed(ImageFeed):
    """Cuts batches out of decoded images, see :class:`~sumpool.data.feeds.cache.DecodedImages`.

    With pixels on a GPU, whole batches are cropped, resized and mirrored there without waiting for
    it. With pixels in main memory and batches on a GPU, the boxes are copied there first. On the
    CPU, train views equal those of a feed that loads the images, bit for bit; on a GPU they are not
    rounded to integers. Test views never differ.

    The arguments are those of :class:`ImageFeed`, and ``decoded``: decoded images with the
    ``resize`` of ``preprocessing``, those of ``dataset`` among them.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        preprocessing: Preprocessing,
        decoded: DecodedImages,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, preprocessing, device, seed)
        if decoded.resize != preprocessing.resize:
            raise ValueError(
                f"decoded must have the shorter side of preprocessing, {preprocessing.resize}; "
                f"it has {decoded.resize}"
            )
        if decoded.pixels.device not in (torch.device("cpu"), device):
            raise ValueError(
                f"decoded must be on the CPU or on {device}, it is on {decoded.pixels.device}"
            )
        rows = decoded.rows(dataset)
        self._decoded, self._rows = decoded, rows
        self._starts, self._sizes = decoded.starts[rows], decoded.sizes[rows]  # (N,), (N, 2)
        pixels, test, train = decoded.pixels, preprocessing.crop, preprocessing.train_side
        self._test_crops = choose_crops(pixels, test, device)
        self._train_crops = choose_crops(pixels, train, device)

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Random views of the sampler's batches, see :meth:`ImageFeed.train_batches`."""
        self._check_sampler(sampler)

        def prepare(step: int) -> _Prepared:
            indices = np.array(sampler.local_batch(step))
            first = sampler.rank * sampler.local_size
            draws = view_draws(self.seed, step, first, len(indices))
            boxes = self.preprocessing.train_boxes(self._sizes[indices], draws)
            return self._prepare(self._train_crops, indices, *boxes)

        return self._batches(self._train_crops, prepare, itertools.count(start))

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Central views in the order given, see :meth:`ImageFeed.test_batches`."""

        def prepare(part: Tensor) -> _Prepared:
            chosen = part.numpy()
            boxes = self.preprocessing.test_boxes(self._sizes[chosen])
            flips = np.zeros(len(chosen), dtype=bool)
            return self._prepare(self._test_crops, chosen, boxes, flips)

        return self._batches(self._test_crops, prepare, self._split(indices, batch_size))

    def _prepare(
        self,
        cropping: Crops,
        indices: NDArray[np.int64],
        boxes: NDArray[np.int64],
        flips: NDArray[np.bool_],
    ) -> _Prepared:
        self._decoded.check(self._rows[indices])
        window = Window(self._starts[indices], self._sizes[indices, 1], boxes, flips)
        chosen = torch.from_numpy(indices)
        labels = self.dataset.labels[chosen]
        if self.device.type != "cuda":
            return _Prepared(chosen, labels, cropping.prepare(window))
        # A thread starts out on the first GPU, where it must not take memory.
        with torch.cuda.device(self.device):
            return _Prepared(chosen, labels.pin_memory(), cropping.prepare(window))

    def _batches(
        self, cropping: Crops, prepare: Callable[[Any], _Prepared], what: Iterable[Any]
    ) -> Iterator[Batch]:
        """Prepare each item of ``what`` in a thread, and finish it on the device."""
        with contextlib.closing(map_ahead(prepare, what, threads=1, ahead=_AHEAD)) as prepared:
            for indices, labels, crops in prepared:
                images = self.preprocessing.normalize(cropping.finish(crops))
                yield Batch(images, labels.to(self.device, non_blocking=True), indices)
