"""Images decoded once, all pixels in one flat buffer."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.base import BrokenImageError, DataError, ImageDataset
from sumpool.data.feeds.cache_build import Pixels, decode_into, estimate_bytes, fingerprint
from sumpool.data.feeds.cache_files import PixelIndex, checksum, stored_pixels
from sumpool.data.feeds.room import check_room
from sumpool.data.feeds.threads import map_ahead
from sumpool.system.cores import usable_cores
from sumpool.system.memory import available_memory

#: Bytes by which a buffer in memory grows.
_GROWTH = 2**26


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """The images of a data set, decoded, the shorter side brought to one length.

    Images keep their aspect ratio and lie one after the other in one buffer, rows of RGB pixels.
    The buffer serves feeds of the data set and of its subsets, whose images are found by name.

    Attributes:
        pixels: The buffer, uint8 (bytes,), on the CPU or a GPU.
        starts: Place of each image's first number in the buffer, (N,).
        sizes: Height and width of each image, (N, 2); 0 × 0 where it could not be read.
        names: Name of each image, as its data set gives it.
        resize: Length of the shorter side; None if images were left as they are.
        broken: Why an image could not be read, by position.
        path: The file that the buffer is mapped from; None if there is none.
        checksums: What :meth:`check` compares the images of that file with, (N,), or None.
    """

    pixels: Tensor
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    names: tuple[str, ...]
    resize: int | None
    broken: dict[int, str]
    path: Path | None = None
    checksums: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def readable(self) -> Tensor:
        """Positions of the images that could be read, (n,) int64; for ``dataset.subset``."""
        return torch.tensor([it for it in range(len(self)) if it not in self.broken])

    def image(self, position: int) -> Tensor:
        """The pixels of one image, uint8 (height, width, 3), a view of the buffer."""
        if position in self.broken:
            raise BrokenImageError(self.broken[position])
        self.check(np.array([position]))
        height, width = self.sizes[position].tolist()
        return self._pixels(position).view(height, width, 3)

    def check(self, rows: NDArray[np.int64]) -> None:
        """Compare images with their checksums, each once: when it is first used.

        Args:
            rows: Their positions.

        Raises:
            DataError: If one is not what was stored.
        """
        if self.checksums is None:
            return
        for row in rows[self._unchecked[rows]].tolist():
            if checksum(self._pixels(row).numpy()) != self.checksums[row]:
                raise DataError(
                    f"{self.path} is damaged: {self.names[row]} is not what was stored; remove "
                    "the file, and images are decoded again"
                )
            self._unchecked[row] = False

    def rows(self, dataset: ImageDataset) -> NDArray[np.int64]:
        """Positions here of the images of ``dataset``, found by name, (len(dataset),).

        Raises:
            DataError: If one is not here.
            BrokenImageError: If one is here but could not be read.
        """
        rows = []
        for name in map(dataset.item_name, range(len(dataset))):
            if name not in self._positions:
                raise DataError(f"{name} is not among the {len(self)} decoded images")
            rows.append(self._positions[name])
        for position in self.broken.keys() & set(rows):
            raise BrokenImageError(self.broken[position])
        return np.array(rows, dtype=np.int64)

    def to(self, device: torch.device | str) -> DecodedImages:
        """The same images on another device; itself if it is there already.

        Raises:
            CacheMemoryError: If the device has too little memory free.
            DataError: If an image is not what was stored.
        """
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device == self.pixels.device:
            return self
        if device.type == "cuda":
            check_room(self.pixels.numel(), torch.cuda.mem_get_info(device)[0], f"on {device}")
        parts = np.array_split(np.arange(len(self)), usable_cores())
        for _ in map_ahead(self.check, parts, len(parts), len(parts)):
            pass
        return replace(self, pixels=self.pixels.to(device), checksums=None)

    def _pixels(self, position: int) -> Tensor:
        start, (height, width) = int(self.starts[position]), self.sizes[position].tolist()
        return self.pixels[start : start + 3 * height * width]

    @functools.cached_property
    def _unchecked(self) -> NDArray[np.bool_]:
        return np.ones(len(self), dtype=bool)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}


def decode_images(
    dataset: ImageDataset,
    resize: int | None = 256,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    skip_broken: bool = False,
    progress: bool = True,
    threads: int | None = None,
) -> DecodedImages:
    """Decode every image of a data set, with the shorter side brought to ``resize``.

    The pixels are those the test view crops from, bit for bit.

    Args:
        dataset: The images.
        resize: Length of the shorter side, in pixels; None leaves images as they are.
        cache_dir: Folder in which the pixels are stored. They are then decoded once for all
            processes and runs that use the folder, and mapped into memory from there. The files
            are identified by names, sizes and modification times of the images, and each image has
            a checksum, which is compared when it is first used. None keeps the pixels in the
            memory of this process.
        skip_broken: Whether images that cannot be read are recorded in ``broken``, not an error.
        progress: Whether to show a progress bar.
        threads: How many decode at once; None is one per core.

    Raises:
        BrokenImageError: If an image cannot be read, unless ``skip_broken``.
        CacheMemoryError: If the pixels would not fit into memory or onto the disk.
        DataError: If the files in ``cache_dir`` cannot be written.
    """
    if not len(dataset):
        raise ValueError("dataset must have at least one image, got none")
    decode = functools.partial(
        decode_into, dataset, resize, skip_broken=skip_broken, progress=progress, threads=threads
    )
    path: Path | None = None
    if cache_dir is None:
        check_room(estimate_bytes(dataset, resize), available_memory(), "of memory")
        buffer = _GrowingBuffer()
        index = decode(buffer.write)
        pixels = torch.from_numpy(buffer.finished())
    else:
        folder = Path(cache_dir)

        def build(file: BinaryIO) -> PixelIndex:
            needed = estimate_bytes(dataset, resize)
            check_room(needed, shutil.disk_usage(folder).free, f"of disk in {folder}")
            sums: list[int] = []

            def write(pixels: Pixels) -> None:
                file.write(pixels.data)
                sums.append(checksum(pixels))

            index = decode(write)
            checksums = np.zeros(len(dataset), dtype=np.uint32)
            checksums[index.lengths() > 0] = sums
            return replace(index, checksums=checksums)

        path, index = stored_pixels(folder, fingerprint(dataset, resize), build)
        if index.broken and not skip_broken:
            first, *others = index.broken.values()
            more = f" (and {len(others):,} more)" if others else ""
            raise BrokenImageError(f"{first}{more}")
        # Mapped, not read: pages come as they are used, and processes share them.
        pixels = torch.from_file(str(path), size=index.total(), dtype=torch.uint8)
    if len(index.broken) == len(dataset):
        raise BrokenImageError(f"no image can be read; the first: {index.broken[0]}")
    lengths = index.lengths()
    return DecodedImages(
        pixels,
        np.cumsum(lengths) - lengths,
        index.sizes,
        tuple(dataset.item_name(index) for index in range(len(dataset))),
        resize,
        index.broken,
        path,
        index.checksums,
    )


class _GrowingBuffer:
    """Bytes in memory, written one piece after the other."""

    def __init__(self) -> None:
        self._data = np.empty(0, dtype=np.uint8)
        self._used = 0

    def write(self, pixels: Pixels) -> None:
        end = self._used + pixels.size
        if end > self._data.size:
            # The C library moves large blocks by renaming pages: no copy, and never two of them.
            self._data.resize(max(end, self._data.size + _GROWTH), refcheck=False)
        self._data[self._used : end] = pixels
        self._used = end

    def finished(self) -> Pixels:
        """What was written; nothing can be written afterwards."""
        self._data.resize(self._used, refcheck=False)
        return self._data
