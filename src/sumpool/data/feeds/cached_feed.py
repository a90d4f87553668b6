"""Feed of batches cropped from decoded images."""

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
from sumpool.data.views.crops import Crops, choose_crops
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.data.views.resample import Window

#: Number of batches prepared in advance on the host.
_AHEAD = 2


class _Chosen(NamedTuple):
    indices: NDArray[np.int64]
    boxes: NDArray[np.int64]
    flips: NDArray[np.bool_]


class _Prepared(NamedTuple):
    indices: Tensor
    labels: Tensor
    crops: Any


class CachedFeed(ImageFeed):
    """Feed of views cropped from :class:`~sumpool.data.feeds.cache.DecodedImages`.

    With pixels on a GPU, whole batches are cropped, resized and mirrored there asynchronously. With
    pixels in main memory and batches on a GPU, the boxes are first copied there. On the CPU, train
    views equal bit for bit those of a feed that loads the images; on a GPU they are not rounded to
    integers. Test views are identical in all cases.

    The arguments are those of :class:`ImageFeed` and ``decoded``, decoded images that include those
    of ``dataset``, with the ``resize`` of ``preprocessing``.
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
        self._test_crops = choose_crops(decoded.pixels, preprocessing.crop, device)
        self._train_crops = choose_crops(decoded.pixels, preprocessing.train_side, device)

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Yield random views of the sampler's batches, see :meth:`ImageFeed.train_batches`."""
        self._check_sampler(sampler)

        def choose(step: int) -> _Chosen:
            indices, draws = self._local_draws(sampler, step)
            return _Chosen(indices, *self.preprocessing.train_boxes(self._sizes[indices], draws))

        return self._batches(self._train_crops, choose, itertools.count(start))

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Yield central views in the given order, see :meth:`ImageFeed.test_batches`."""

        def choose(part: Tensor) -> _Chosen:
            chosen = part.numpy()
            boxes = self.preprocessing.test_boxes(self._sizes[chosen])
            return _Chosen(chosen, boxes, np.zeros(len(chosen), dtype=bool))

        return self._batches(self._test_crops, choose, self._split(indices, batch_size))

    def _prepare(self, crops: Crops, chosen: _Chosen) -> _Prepared:
        indices, boxes, flips = chosen
        self._decoded.check(self._rows[indices])
        window = Window(self._starts[indices], self._sizes[indices, 1], boxes, flips)
        places = torch.from_numpy(indices)
        labels = self.dataset.labels[places]
        if self.device.type != "cuda":
            return _Prepared(places, labels, crops.prepare(window))
        # A new thread defaults to the first GPU, on which it must not allocate memory.
        with torch.cuda.device(self.device):
            return _Prepared(places, labels.pin_memory(), crops.prepare(window))

    def _batches(
        self, crops: Crops, choose: Callable[[Any], _Chosen], what: Iterable[Any]
    ) -> Iterator[Batch]:
        """Choose and prepare each item of ``what`` in a thread, and finish it on the device."""

        def prepare(it: Any) -> _Prepared:
            return self._prepare(crops, choose(it))

        with contextlib.closing(map_ahead(prepare, what, threads=1, ahead=_AHEAD)) as prepared:
            for indices, labels, pixels in prepared:
                images = self.preprocessing.normalize(crops.finish(pixels))
                yield Batch(images, labels.to(self.device, non_blocking=True), indices)
