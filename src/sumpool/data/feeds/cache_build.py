"""Multithreaded decoding of all images of a data set, in order."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.data.base import Broken, BrokenImageError, ImageDataset
from sumpool.data.feeds.cache_files import PixelIndex
from sumpool.data.feeds.threads import map_ahead
from sumpool.data.views.preprocessing import resize_shorter_side
from sumpool.system.cores import usable_cores

#: Number of images sampled to estimate the total size or to fingerprint generated images.
_SAMPLES = 32

Pixels = NDArray[np.uint8]


def decode_into(
    dataset: ImageDataset,
    resize: int | None,
    write: Callable[[Pixels], object],
    *,
    progress: bool,
    threads: int | None,
) -> PixelIndex:
    """Decode every image, resize its shorter side to ``resize`` and write its pixels, in order.

    ``write`` is called with the pixels of each image, uint8 (n,), as rows of RGB; the other
    arguments are those of :func:`~sumpool.data.feeds.cache.decode_images`.
    """

    def decode(position: int) -> Pixels | BrokenImageError:
        try:
            return np.asarray(resize_shorter_side(dataset.load(position), resize))  # (h, w, 3)
        except BrokenImageError as error:
            return error

    sizes = np.zeros((len(dataset), 2), dtype=np.int64)
    broken: list[Broken] = []
    threads = usable_cores() if threads is None else threads
    positions = range(len(dataset))
    with (
        contextlib.closing(map_ahead(decode, positions, threads, ahead=8 * threads)) as decoded,
        tqdm(decoded, "decoding", len(dataset), disable=not progress, unit="image") as bar,
    ):
        for position, pixels in enumerate(bar):
            if isinstance(pixels, BrokenImageError):
                broken.append((dataset.item_name(position), pixels.reason))
            elif not broken:
                sizes[position] = pixels.shape[:2]
                write(pixels.reshape(-1))
    if broken:  # after the loop, to report all of them
        raise BrokenImageError.of(broken)
    return PixelIndex(sizes)


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` positions spread evenly over 0..count − 1."""
    return sorted(set(np.linspace(0, count - 1, min(count, most)).astype(int).tolist()))


def estimate_bytes(dataset: ImageDataset, resize: int | None) -> int:
    """Estimate the number of bytes of all decoded images from a sample."""
    lengths = []
    for position in _spread(len(dataset), _SAMPLES):
        try:
            image = dataset.load(position)
        except BrokenImageError:
            continue
        short, long = sorted(image.size)
        lengths.append(3 * (short * long if resize is None else resize * (resize * long // short)))
    return int(np.mean(lengths) * len(dataset)) if lengths else 0


def fingerprint(dataset: ImageDataset, resize: int | None) -> str:
    """Compute an identifier for the decoded images of a data set that changes with the images.

    It is a hash of the name, file size and modification time of images loaded from files. For other
    images, it covers the names and the pixels of a few of them.
    """
    digest = hashlib.sha256(f"resize={resize} images={len(dataset)}".encode())
    made_up = []
    for position in range(len(dataset)):
        name = dataset.item_name(position)
        try:
            status = os.stat(dataset.item_file(position) or name)
        except (OSError, ValueError):
            made_up.append(position)
            digest.update(f"\n{name}".encode())
        else:
            path = os.path.abspath(name)
            digest.update(f"\n{path} {status.st_size} {status.st_mtime_ns}".encode())
    for place in _spread(len(made_up), _SAMPLES) if made_up else []:
        try:
            digest.update(dataset.load(made_up[place]).tobytes())
        except BrokenImageError as error:
            digest.update(str(error).encode())
    return digest.hexdigest()[:32]
