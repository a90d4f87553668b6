"""The IDX format: arrays of bytes with a header, as MNIST comes in."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumpool.data.base import DataError

_UNSIGNED_BYTE = 0x08
_CHUNK = 1 << 24


def read_idx(path: Path, ndim: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file, plain or, where its name ends so, ``.gz``.

    Args:
        path: The file.
        ndim: The number of dimensions it must have.

    Raises:
        DataError: If it is cut short, too long, damaged or of another type; names the file.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _read_shape(path, file, ndim)
            wanted = int(np.prod(shape, dtype=object))
            content = _read_up_to(file, wanted + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(content) != wanted:
        found = "more" if len(content) > wanted else f"{len(content):,}"
        raise DataError(
            f"{path} must hold {wanted:,} bytes, as its header says for shape {shape}, "
            f"found {found}"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_shape(path: Path, file: io.BufferedIOBase, ndim: int) -> tuple[int, ...]:
    header = file.read(4 + 4 * ndim)
    if len(header) < 4 + 4 * ndim:
        raise DataError(f"{path} is cut short: its header has {len(header)} bytes")
    zero, kind, dimensions = struct.unpack(">HBB", header[:4])
    if zero != 0 or kind != _UNSIGNED_BYTE or dimensions != ndim:
        raise DataError(
            f"{path} is no IDX file of unsigned bytes in {ndim} dimensions: "
            f"it begins with {header[:4].hex(' ')}"
        )
    return struct.unpack(f">{ndim}I", header[4:])


def _read_up_to(file: io.BufferedIOBase, size: int) -> bytearray:
    """At most ``size`` bytes, in pieces: a wrong header must not make us ask for terabytes."""
    content = bytearray()
    while len(content) < size:
        piece = file.read(min(_CHUNK, size - len(content)))
        if not piece:
            break
        content += piece
    return content


def find_idx(folder: Path, name: str) -> Path | None:
    """The file ``name`` or ``name.gz`` in ``folder``; None if there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if os.path.isfile(path):
            return path
    return None
