"""Atomic writes: files are complete or absent, even if a process is killed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sumpool.system.errors import UserError


class StoreError(UserError):
    """Results cannot be read or stored; the message says why or what to do."""


def refuse_overwriting(paths: Iterable[Path], *, overwrite: bool = False) -> None:
    """Refuse output files that cannot be written, before results are computed that would be lost.

    Args:
        paths: Files to be written.
        overwrite: Whether existing files may be replaced; folders never are.

    Raises:
        StoreError: If a path exists, or its folder is not writable; names the first.
    """
    paths = list(paths)
    there = [path for path in paths if path.is_dir() or (path.exists() and not overwrite)]
    if there:
        more = f", and {len(there) - 1} more" if len(there) > 1 else ""
        remedy = "" if there[0].is_dir() else ", or replace it with --overwrite"
        kind = "is a folder" if there[0].is_dir() else "exists already"
        raise StoreError(f"{there[0]} {kind}{more}: choose another name{remedy}")
    for path in paths:
        folder = next(it for it in path.absolute().parents if it.exists())
        if not folder.is_dir():
            raise StoreError(f"{path} cannot be written: {folder} is no folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(f"{path} cannot be written: {folder} takes no files of yours")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; its file replaces ``path`` once it is on disk.

    For writers that need a path or an open file; :func:`write_atomic` writes bytes.

    Raises:
        StoreError: If the file cannot be written; an existing ``path`` is kept.
    """
    # Hidden and uniquely named, so that concurrent writers do not interfere.
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        _sync(aside)
        os.replace(aside, path)
        _sync(path.parent)  # a rename is durable only once its folder is synced
    except OSError as error:
        reason = error.strerror or f"{error} (is the disk full?)"
        raise StoreError(f"{path} could not be written: {reason}") from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` completely or not at all; on return it is on disk.

    Raises:
        StoreError: If it cannot be written; an existing ``path`` is kept.
    """
    with atomic_path(path) as aside:
        aside.write_bytes(content)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
