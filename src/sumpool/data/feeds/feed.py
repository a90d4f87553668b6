"""Construction of image feeds."""

from __future__ import annotations

import os
from typing import Literal, get_args

import torch

from sumpool.data.base import ImageDataset
from sumpool.data.feeds.batches import Batch, ImageFeed
from sumpool.data.feeds.cache import DecodedImages, decode_images
from sumpool.data.feeds.cache_build import estimate_bytes
from sumpool.data.feeds.cached_feed import CachedFeed
from sumpool.data.feeds.collage_feed import CollageFeed, shows_collages
from sumpool.data.feeds.loading_feed import LoadingFeed
from sumpool.data.feeds.memory import check_capacity
from sumpool.data.views.preprocessing import Preprocessing

__all__ = ["Batch", "Cache", "ImageFeed", "open_feed"]

#: Where decoded images are cached: nowhere, in main memory or on the GPU.
Cache = Literal["none", "ram", "gpu"]


def open_feed(
    dataset: ImageDataset,
    preprocessing: Preprocessing,
    *,
    cache: Cache = "none",
    device: torch.device | str = "cpu",
    workers: int | None = None,
    seed: int = 0,
    progress: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    decoded: DecodedImages | None = None,
) -> ImageFeed:
    """Open a feed of a data set's images, which are loaded on demand or decoded in advance.

    The views do not depend on the kind of cache: equal seeds and samplers give the same boxes and
    flips of the same images.

    Args:
        dataset: The images, without transforms.
        preprocessing: The train and the test view.
        cache: "none" loads an image each time it is used; "ram" decodes all images once into main
            memory; "gpu" also copies them to the GPU and crops batches there. For CIFAR collages
            both keep only the tiles, on ``device``, and compose collages there.
        device: Device of the batches.
        workers: Number of worker processes that load images with cache "none", otherwise of
            decoding threads, at least one. None for one per core.
        seed: Determines the random views.
        progress: Whether to show a progress bar while decoding.
        cache_dir: Folder in which decoded images are stored for other processes and later runs,
            see :func:`~sumpool.data.feeds.cache.decode_images`.
        decoded: Decoded images to share between feeds, of the data set or of its parent. With
            cache "gpu" they may already be on the GPU (``decoded.to(device)``).

    Raises:
        BrokenImageError: If an image cannot be decoded; names it.
        CacheMemoryError: If memory is insufficient; gives the bytes needed.

    Example:
        >>> import torch
        >>> from PIL import Image
        >>> class Grays(ImageDataset):
        ...     def load(self, index):
        ...         return Image.new("RGB", (32, 32), (index, index, index))
        ...
        ...     def item_name(self, index):
        ...         return f"gray {index}"
        >>> preprocessing = Preprocessing(
        ...     resize=None, crop=32, augment="none", mean=(0, 0, 0), std=(1, 1, 1)
        ... )
        >>> grays = Grays([0, 0, 1], ["dark", "light"])
        >>> feed = open_feed(grays, preprocessing, cache="ram", progress=False)
        >>> (batch,) = feed.test_batches([2, 0])
        >>> batch.images.shape, batch.labels, batch.indices
        (torch.Size([2, 3, 32, 32]), tensor([1, 0]), tensor([2, 0]))
    """
    if cache not in get_args(Cache):
        raise ValueError(f"cache must be one of {', '.join(get_args(Cache))}, got {cache!r}")
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if cache == "none":
        for name, value in (("cache_dir", cache_dir), ("decoded", decoded)):
            if value is not None:
                raise ValueError(f"{name} needs cache 'ram' or 'gpu', got cache 'none'")
        return LoadingFeed(dataset, preprocessing, device, seed, workers)
    if cache == "gpu" and device.type != "cuda":
        raise ValueError(f"cache 'gpu' needs a CUDA device, got device {str(device)!r}")
    if decoded is None and shows_collages(dataset, preprocessing):
        return CollageFeed(dataset, preprocessing, device, seed)
    if decoded is None:
        if cache == "gpu":  # fail before minutes of decoding
            needed = estimate_bytes(dataset, preprocessing.resize)
            check_capacity(needed, torch.cuda.mem_get_info(device)[0], f"on {device}")
        decoded = decode_images(
            dataset,
            preprocessing.resize,
            cache_dir=cache_dir,
            progress=progress,
            threads=None if workers is None else max(1, workers),
        )
    elif cache_dir is not None:
        raise ValueError("cache_dir and decoded exclude each other: decoded is ready for use")
    if cache == "gpu":
        decoded = decoded.to(device)
    return CachedFeed(dataset, preprocessing, decoded, device, seed)
