"""Files that are complete or absent, whichever process is killed when."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class StoreError(Exception):
    """Results cannot be read or stored; the message says why, or what to do."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path to write to inside the ``with``; its file replaces ``path`` once it is on disk.

    For writers that need a path or an open file; :func:`write_atomic` writes bytes.

    Raises:
        StoreError: If the file cannot be written; what was at ``path`` stays.
    """
    # Hidden, and with a name of its own: two writers never see each other's half.
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        _sync(aside)
        os.replace(aside, path)
        _sync(path.parent)  # a rename is on disk only once its folder is
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` completely or not at all; on return it is on disk.

    Raises:
        StoreError: If it cannot be written; what was at ``path`` stays.
    """
    with atomic_path(path) as aside:
        aside.write_bytes(content)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
