"""Files of feature maps, shared between processes and extended on demand."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.feeds.cache_files import checksum, sole_writer
from sumpool.system.files import write_atomic
from sumpool.system.wording import counted


def default_folder() -> Path:
    """Return the default folder of maps: ``sumpool`` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sumpool"


class MapFile:
    """File of one float16 map per image of a data set, ``KEY.maps``.

    The file is sparse: it has the size of all maps from the start, but only written maps take disk
    space. ``KEY.rows`` has a byte per image, 1 once its map is on disk: an interrupted process
    loses only what it wrote after the last :meth:`commit`. ``KEY.sums`` has a checksum per image;
    earlier versions did not write it.

    Args:
        folder: Folder of the files; created if needed.
        key: Name of the files, which must change with anything that affects the maps.
        count: Number of images.
        shape: Shape of a map.
    """

    def __init__(self, folder: Path, key: str, count: int, shape: tuple[int, ...]) -> None:
        self.path, self._rows = folder / f"{key}.maps", folder / f"{key}.rows"
        self._checksums = folder / f"{key}.sums"
        self._shape = (count, *shape)
        #: Size of a map in bytes.
        self.row_bytes = 2 * int(np.prod(shape))
        self._stored = np.zeros(count, dtype=np.uint8)
        self._sums = np.zeros(count, dtype=np.uint32)  # 0 if unknown

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the file, to determine and write missing maps; other processes wait.

        Raises:
            DataError: If the files cannot be written; names the file.
        """
        with sole_writer(self.path, "feature maps"):
            self._open()
            yield

    def missing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ``rows`` that are not stored or are damaged; warn about damage."""
        bad = [row for row in rows[self._sums[rows] > 0].tolist() if not self._is_sound(row)]
        if bad:
            images = counted(len(bad), "image")
            warnings.warn(f"{self.path} is damaged; computing {images} again", stacklevel=3)
            self._stored[bad] = 0
        found: NDArray[np.int64] = rows[self._stored[rows] == 0]
        return found

    def _is_sound(self, row: int) -> bool:
        place = row * self.row_bytes
        pixels = np.fromfile(self.path, np.uint8, self.row_bytes, offset=place)
        return bool(checksum(pixels) == self._sums[row])

    def write(self, row: int, values: NDArray[np.float16]) -> None:
        """Write the map of one image, which is durable after the next :meth:`commit`."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        with self.path.open("r+b") as file:
            file.seek(row * self.row_bytes)
            file.write(flat.data)
        self._stored[row], self._sums[row] = 1, checksum(flat)

    def commit(self) -> None:
        """Flush written maps to disk and mark them as stored."""
        handle = os.open(self.path, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        write_atomic(self._checksums, self._sums.tobytes())
        write_atomic(self._rows, self._stored.tobytes())

    def maps(self) -> Tensor:
        """Memory-map all maps, float16 (count, *shape); maps that are not stored are zero."""
        size = int(np.prod(self._shape))
        return torch.from_file(str(self.path), size=size, dtype=torch.float16).view(self._shape)

    def _open(self) -> None:
        count, size = len(self._stored), len(self._stored) * self.row_bytes
        stored = self._rows.read_bytes() if self._rows.is_file() else None
        whole = self.path.is_file() and self.path.stat().st_size == size
        if stored is not None and len(stored) == count and set(stored) <= {0, 1} and whole:
            self._stored = np.frombuffer(stored, dtype=np.uint8).copy()
            sums = self._checksums.read_bytes() if self._checksums.is_file() else b""
            if len(sums) == self._sums.nbytes:
                self._sums = np.frombuffer(sums, dtype=np.uint32) * self._stored
            return
        if stored is not None:
            warnings.warn(f"{self.path} is damaged; computing it again", stacklevel=4)
            self._rows.unlink()
        self._stored[:], self._sums[:] = 0, 0
        with self.path.open("wb") as file:
            file.truncate(size)
