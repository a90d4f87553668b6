"""Decoded pixels in a file that processes share: written once, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.data.base import DataError

#: Changes when files of another form are written.
_FORMAT = 1


@dataclass(frozen=True)
class Layout:
    """Which images a buffer holds, one after the other.

    Attributes:
        sizes: Height and width of each image, (N, 2); 0 × 0 where it could not be read.
        broken: Why it could not be read, by its position.
    """

    sizes: NDArray[np.int64]
    broken: dict[int, str]

    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each image, (N,)."""
        lengths: NDArray[np.int64] = 3 * self.sizes[:, 0] * self.sizes[:, 1]
        return lengths

    def total(self) -> int:
        """Bytes of all images."""
        return int(self.lengths().sum())


def stored_pixels(
    folder: Path, key: str, build: Callable[[BinaryIO], Layout]
) -> tuple[Path, Layout]:
    """The file of pixels that belongs to ``key``; made by ``build`` if there is none.

    Of several processes that ask for the same file, one makes it and the others wait. Pixels and
    their index are written under other names and renamed when complete, the index last.

    Args:
        folder: Where the files are; made if needed.
        key: Name of the file, a fingerprint of what it holds.
        build: Writes the pixels into the file it is given and says how they lie in it.

    Raises:
        DataError: If the files cannot be written; names the folder's file and says why.
    """
    pixels, index = folder / f"{key}.pixels", folder / f"{key}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{key}.lock"):
            layout = _read_index(pixels, index)
            if layout is None:
                _remove_unfinished(pixels, index)
                layout = _write(pixels, index, build)
    except OSError as error:
        raise DataError(
            f"cannot keep decoded images in {pixels}: {error.strerror or error}"
        ) from error
    return pixels, layout


def _remove_unfinished(pixels: Path, index: Path) -> None:
    """Remove what processes left that were killed while they wrote; the lock must be held."""
    if sys.platform == "win32":  # without locks: another process may be writing
        return
    for path in (pixels, index):
        for left in path.parent.glob(f"{path.name}.*"):
            left.unlink(missing_ok=True)


def _write(pixels: Path, index: Path, build: Callable[[BinaryIO], Layout]) -> Layout:
    unfinished = [path.with_name(f"{path.name}.{os.getpid()}") for path in (pixels, index)]
    try:
        with unfinished[0].open("wb") as file:
            layout = build(file)
            _settle(file)
        with unfinished[1].open("w", encoding="utf-8") as text:
            broken = {str(position): reason for position, reason in layout.broken.items()}
            json.dump(
                {
                    "format": _FORMAT,
                    "bytes": layout.total(),
                    "broken": broken,
                    "sizes": layout.sizes.tolist(),
                },
                text,
            )
            _settle(text)
        unfinished[0].replace(pixels)
        unfinished[1].replace(index)
    finally:
        for path in unfinished:
            path.unlink(missing_ok=True)
    return layout


def _settle(file: IO[Any]) -> None:
    """Wait until the file is on the disk: a name must never come before its contents."""
    file.flush()
    os.fsync(file.fileno())


def _read_index(pixels: Path, index: Path) -> Layout | None:
    """The layout of a stored file, or None if there is none that is whole."""
    if not index.exists():
        return None
    try:
        values = json.loads(index.read_text(encoding="utf-8"))
        sizes = np.array(values["sizes"], dtype=np.int64).reshape(-1, 2)
        broken = {int(position): str(reason) for position, reason in values["broken"].items()}
        layout = Layout(sizes, broken)
        whole = values["format"] == _FORMAT and values["bytes"] == layout.total()
        whole = whole and pixels.stat().st_size == layout.total()
    except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError):
        whole = False
    if not whole:
        warnings.warn(f"{index} or its pixels are damaged; decoding again", stacklevel=4)
        return None
    return layout


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds a lock between processes of one machine, where the system has such locks."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tqdm.write(f"waiting for the process that decodes into {path}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
