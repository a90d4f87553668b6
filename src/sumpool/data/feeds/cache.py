"""Images decoded once into a flat pixel buffer."""

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

from sumpool.data.base import DataError, ImageDataset
from sumpool.data.feeds.cache_build import Pixels, decode_into, estimate_bytes, fingerprint
from sumpool.data.feeds.cache_files import PixelIndex, checksum, stored_pixels
from sumpool.data.feeds.memory import check_capacity
from sumpool.data.feeds.threads import map_ahead
from sumpool.system.cores import usable_cores
from sumpool.system.memory import available_memory

#: Minimum number of bytes by which a buffer in memory grows.
_GROWTH = 2**26


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """The decoded images of a data set, optionally resized to a common shorter side.

    Images keep their aspect ratio and are stored in one buffer, one after another, as rows of RGB
    pixels. The buffer serves feeds of the data set and of its subsets, whose images are looked up
    by name.

    Attributes:
        pixels: The buffer, uint8 (bytes,), on the CPU or a GPU.
        starts: Buffer position of each image's first value, (N,).
        sizes: Height and width of each image, (N, 2).
        names: Name of each image in its data set.
        resize: Length of the shorter side; None if images were not resized.
        path: The file that the buffer is mapped from, or None.
        checksums: Expected checksums of the images in that file, (N,), or None; see :meth:`check`.
    """

    pixels: Tensor
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    names: tuple[str, ...]
    resize: int | None
    path: Path | None = None
    checksums: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def check(self, rows: NDArray[np.int64]) -> None:
        """Verify the checksums of images; each image is checked once, when it is first used.

        Args:
            rows: Positions of the images.

        Raises:
            DataError: If an image differs from what was stored.
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
        """Look up the images of ``dataset`` by name and return their positions, (len(dataset),).

        Raises:
            DataError: If an image was not decoded.
        """
        rows = []
        for name in map(dataset.item_name, range(len(dataset))):
            if name not in self._positions:
                raise DataError(f"{name} is not among the {len(self)} decoded images")
            rows.append(self._positions[name])
        return np.array(rows, dtype=np.int64)

    def to(self, device: torch.device | str) -> DecodedImages:
        """Copy the images to a device; return ``self`` if they are already there.

        Raises:
            CacheMemoryError: If the device has too little free memory.
            DataError: If an image differs from what was stored.
        """
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device == self.pixels.device:
            return self
        if device.type == "cuda":
            check_capacity(self.pixels.numel(), torch.cuda.mem_get_info(device)[0], f"on {device}")
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
    progress: bool = True,
    threads: int | None = None,
) -> DecodedImages:
    """Decode every image of a data set and resize its shorter side to ``resize``.

    The pixels are bit for bit those that the test view crops from.

    Args:
        dataset: The images.
        resize: Length of the shorter side in pixels; None for no resizing.
        cache_dir: Folder in which to store the pixels. They are then decoded once for all processes
            and runs that use the folder, and memory-mapped. The files are identified by names,
            sizes and modification times of the images; the checksum of each image is verified when
            it is first used. None keeps the pixels in the memory of this process.
        progress: Whether to show a progress bar.
        threads: Number of decoding threads; None for one per core.

    Raises:
        BrokenImageError: If images cannot be read; counts all and names the first few.
        CacheMemoryError: If the pixels do not fit into memory or on the disk.
        DataError: If the files in ``cache_dir`` cannot be written.
    """
    if not len(dataset):
        raise ValueError("dataset must have at least one image, got none")
    decode = functools.partial(decode_into, dataset, resize, progress=progress, threads=threads)
    path: Path | None = None
    if cache_dir is None:
        check_capacity(estimate_bytes(dataset, resize), available_memory(), "of memory")
        buffer = _GrowingBuffer()
        index = decode(buffer.write)
        pixels = torch.from_numpy(buffer.finished())
    else:
        folder = Path(cache_dir)

        def build(file: BinaryIO) -> PixelIndex:
            needed = estimate_bytes(dataset, resize)
            check_capacity(needed, shutil.disk_usage(folder).free, f"of disk in {folder}")
            sums: list[int] = []

            def write(pixels: Pixels) -> None:
                file.write(pixels.data)
                sums.append(checksum(pixels))

            sizes = decode(write).sizes
            return PixelIndex(sizes, np.array(sums, dtype=np.uint32))

        path, index = stored_pixels(folder, fingerprint(dataset, resize), build)
        # Memory-mapped: pages are loaded on demand and shared between processes.
        pixels = torch.from_file(str(path), size=index.total(), dtype=torch.uint8)
    lengths = index.lengths()
    return DecodedImages(
        pixels,
        np.cumsum(lengths) - lengths,
        index.sizes,
        tuple(dataset.item_name(index) for index in range(len(dataset))),
        resize,
        path,
        index.checksums,
    )


class _GrowingBuffer:
    """In-memory byte buffer that is written sequentially."""

    def __init__(self) -> None:
        self._data = np.empty(0, dtype=np.uint8)
        self._used = 0

    def write(self, pixels: Pixels) -> None:
        end = self._used + pixels.size
        if end > self._data.size:
            # The C library moves large blocks by remapping pages, without a second copy.
            self._data.resize(max(end, self._data.size + _GROWTH), refcheck=False)
        self._data[self._used : end] = pixels
        self._used = end

    def finished(self) -> Pixels:
        """Return the written bytes; the buffer cannot be written afterward."""
        self._data.resize(self._used, refcheck=False)
        return self._data
