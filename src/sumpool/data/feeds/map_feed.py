"""Feed of precomputed feature maps of a frozen network, in place of images."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.base import ImageDataset, ImageSubset
from sumpool.data.feeds.batches import Batch, ImageFeed
from sumpool.data.feeds.feed import Cache
from sumpool.data.feeds.map_build import store_maps
from sumpool.data.feeds.map_files import default_folder
from sumpool.data.feeds.memory import check_capacity
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.views.preprocessing import Preprocessing

#: Share of a GPU's free memory that maps may take by default.
_MOST_OF_GPU = 0.5


class MapFeed(ImageFeed):
    """Feed that yields stored feature maps as the images of its batches, (b, …) float32.

    The arguments are those of :class:`ImageFeed`, and

    Args:
        maps: One tensor per view, float16 (N, …), the central view first; all in main memory or
            all on ``device``.
        rows: Position of each image of ``dataset`` in the maps, (len(dataset),).
    """

    def __init__(
        self,
        dataset: ImageDataset,
        preprocessing: Preprocessing,
        maps: Sequence[Tensor],
        rows: NDArray[np.int64],
        device: torch.device,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, preprocessing, device, seed)
        self._maps, self._rows = maps, rows

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Yield maps of randomly chosen stored views, see :meth:`ImageFeed.train_batches`."""
        self._check_sampler(sampler)
        for step in itertools.count(start):
            indices, draws = self._local_draws(sampler, step)
            yield self._batch(indices, (draws[:, 0] * len(self._maps)).astype(np.int64))

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Yield maps of central views in the given order, see :meth:`ImageFeed.test_batches`."""
        for part in self._split(indices, batch_size):
            chosen = part.numpy()
            yield self._batch(chosen, np.zeros_like(chosen))

    def _batch(self, indices: NDArray[np.int64], views: NDArray[np.int64]) -> Batch:
        places = zip(views.tolist(), self._rows[indices].tolist(), strict=True)
        maps = torch.stack([self._maps[view][row] for view, row in places])
        chosen = torch.from_numpy(indices)
        labels = self.dataset.labels[chosen].to(self.device)
        return Batch(maps.to(self.device).float(), labels, chosen)


def open_map_feed(
    dataset: ImageDataset,
    preprocessing: Preprocessing,
    network: Callable[[Tensor], Tensor],
    *,
    identity: str,
    views: int = 1,
    cache: Cache = "none",
    cache_dir: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> MapFeed:
    """Open a feed of the feature maps of a data set's images, computed once and stored on disk.

    Maps are stored for the parent data set, so that feeds of other subsets and runs with other
    seeds reuse them. The stored views do not depend on ``seed``, which only determines which of
    them are used at each step.

    Args:
        dataset: The images, without transforms.
        preprocessing: The views of the images.
        network: Frozen network from normalized images (b, 3, crop, crop) on ``device`` to maps
            (b, …).
        identity: Identifier of the network and its weights.
        views: Number of training views per image: the central one, the others random.
        cache: "gpu" keeps the maps on the GPU and "ram" in main memory, mapped from the files;
            "none" selects "gpu" if they take less than half of its free memory, otherwise "ram".
        cache_dir: Folder of the files; None for ``sumpool`` in the user's cache folder.
        device: Device of the batches.
        workers: Number of threads that decode images, at least one; None for one per core.
        seed: Determines which views are used at each step.
        progress: Whether to show a progress bar.

    Raises:
        BrokenImageError: If images cannot be read; names them.
        CacheMemoryError: If the disk has too little space or, with cache "gpu", the GPU.
        DataError: If the files cannot be written, or a map is not finite in float16.
    """
    device = torch.device(device)
    source, rows = dataset, np.arange(len(dataset))
    if isinstance(dataset, ImageSubset):
        source, rows = dataset.parent, dataset.indices.numpy()
    maps = store_maps(
        source,
        rows,
        preprocessing,
        network,
        identity=identity,
        views=views,
        folder=default_folder() if cache_dir is None else Path(cache_dir),
        device=device,
        threads=None if workers is None else max(1, workers),
        progress=progress,
    )
    if device.type == "cuda" and cache != "ram":
        needed = len(rows) * sum(view[0].numel() * view.element_size() for view in maps)
        free = torch.cuda.mem_get_info(device)[0]
        if cache == "gpu":
            check_capacity(needed, free, f"on {device}", what="feature maps")
        if cache == "gpu" or needed < _MOST_OF_GPU * free:
            maps = [_copied(view, rows, device) for view in maps]
            rows = np.arange(len(rows))
    return MapFeed(dataset, preprocessing, maps, rows, device, seed)


def _copied(maps: Tensor, rows: NDArray[np.int64], device: torch.device) -> Tensor:
    """Copy ``maps[rows]`` to ``device`` in chunks, so that main memory holds only one of them."""
    out = torch.empty(len(rows), *maps.shape[1:], dtype=maps.dtype, device=device)
    places = torch.from_numpy(rows)
    for some, part in zip(out.split(1024), places.split(1024), strict=True):
        some.copy_(maps[part])
    return out
