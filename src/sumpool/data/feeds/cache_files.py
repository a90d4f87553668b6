"""Decoded pixels in a file that processes share: written once, complete or not at all."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.data.base import DataError
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, atomic_path, write_atomic
from sumpool.system.locks import exclusive, is_claimed

#: Version of the files; changes with their form.
_FORMAT = 1
#: Key of the SHA-256 of an index; those of an earlier version have none.
_DIGEST = "sha256"
#: Bytes that are added up before what they sum to is hashed.
_BLOCK = 4096


@dataclass(frozen=True)
class PixelIndex:
    """Which images a buffer holds, one after the other.

    Attributes:
        sizes: Height and width of each image, (N, 2); 0 × 0 where it could not be read.
        broken: Why an image could not be read, by position.
        checksums: :func:`checksum` of each image, (N,); None if they are not known.
    """

    sizes: NDArray[np.int64]
    broken: dict[int, str]
    checksums: NDArray[np.uint32] | None = None

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each image, (N,)."""
        lengths: NDArray[np.int64] = 3 * self.sizes[:, 0] * self.sizes[:, 1]
        return lengths

    def total(self) -> int:
        """Bytes of all images."""
        return int(self.lengths().sum())


def checksum(pixels: NDArray[np.uint8]) -> int:
    """A checksum of ``pixels`` (n,) that takes a hundredth of the time of decoding them.

    It is the CRC-32 of the sums of blocks of 4 KB, in words of 8 bytes, and of what is left: other
    than CRC-32 of all bytes, it overlooks words that change places within a block.

    Example:
        >>> hex(checksum(np.arange(9, dtype=np.uint8)))
        '0xbce14302'
    """
    end = pixels.size - pixels.size % _BLOCK
    sums = pixels[:end].view("<u8").reshape(-1, _BLOCK // 8).sum(1)
    return zlib.crc32(pixels[end:].tobytes(), zlib.crc32(sums.tobytes()))


def stored_pixels(
    folder: Path, key: str, build: Callable[[BinaryIO], PixelIndex]
) -> tuple[Path, PixelIndex]:
    """The file of pixels that belongs to ``key``; ``build`` writes it if there is none.

    Of several processes that ask for the same file, one writes it and the others wait.

    Args:
        folder: Where the files are; created if needed.
        key: Name of the file, a fingerprint of what it holds.
        build: Writes the pixels into the given file and returns their index.

    Raises:
        DataError: If the files cannot be written; names the file and says why.
    """
    pixels, index, lock = (folder / f"{key}.{ending}" for ending in ("pixels", "json", "lock"))
    try:
        if is_claimed(lock):
            tqdm.write(f"waiting for the process that decodes into {pixels}", file=sys.stderr)
        with exclusive(lock):
            found = _read_index(pixels, index)
            if found is None:
                for path in (pixels, index):  # left by processes that were killed
                    for left in folder.glob(f".{path.name}.*.part"):
                        left.unlink(missing_ok=True)
                found = _write(pixels, index, build)
    except (OSError, StoreError) as error:
        raise DataError(f"decoded images cannot be stored: {error}") from error
    return pixels, found


def _write(pixels: Path, index: Path, build: Callable[[BinaryIO], PixelIndex]) -> PixelIndex:
    with atomic_path(pixels) as aside, aside.open("wb") as file:
        written = build(file)
    content = {
        "format": _FORMAT,
        "bytes": written.total(),
        "broken": {str(position): reason for position, reason in written.broken.items()},
        "sizes": written.sizes.tolist(),
        "checksums": None if written.checksums is None else written.checksums.tolist(),
    }
    content[_DIGEST] = _digest(content)
    write_atomic(index, json.dumps(content).encode())  # last: it vouches for the pixels
    return written


def _read_index(pixels: Path, index: Path) -> PixelIndex | None:
    """The index of a stored file, or None if there is no intact one."""
    if not index.exists():
        return None
    try:
        values = load_json(index)
        sizes = np.array(values["sizes"], dtype=np.int64).reshape(-1, 2)
        broken = {int(position): str(reason) for position, reason in values["broken"].items()}
        checksums = values.get("checksums")
        if checksums is not None:
            checksums = np.array(checksums, dtype=np.uint32).reshape(len(sizes))
        found = PixelIndex(sizes, broken, checksums)
        intact = values["format"] == _FORMAT and values["bytes"] == found.total()
        intact = intact and pixels.stat().st_size == found.total()
        intact = intact and values.pop(_DIGEST, None) in (None, _digest(values))
    except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError):
        intact = False
    if not intact:
        warnings.warn(f"{index} or its pixels are damaged; decoding again", stacklevel=4)
        return None
    return found


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
