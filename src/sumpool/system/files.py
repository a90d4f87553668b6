"""Files that are there whole or not at all, whoever is killed when."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


class StoreError(Exception):
    """Results cannot be read or kept as asked; the message says why, or what to do."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` whole or not at all; it is on the disk when this returns.

    Raises:
        StoreError: If it cannot be written.
    """
    # Hidden, and with a name of its own: of two writers neither sees the other's half.
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # a rename is on disk only once its folder is
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise StoreError(f"{path} could not be written: {error.strerror or error}") from error
