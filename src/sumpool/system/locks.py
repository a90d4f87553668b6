"""File locks, held by one process at a time.

The kernel (``flock``) releases them when the process ends, however it ends: a killed process leaves
no stale lock behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sumpool.system.documents import load_json
from sumpool.system.files import StoreError

#: Descriptors of the locks held by this process.
_held: set[int] = set()


def _release_in_child() -> None:
    # A forked process, such as a data-loading worker, shares the lock and would keep it after its
    # parent was killed. Closing the child's descriptor does not release the parent's lock.
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Hold the lock on ``path`` inside the ``with``; yields False if another process holds it.

    Releasing the lock does not remove the file: a process waiting for the lock of a removed file
    would acquire one that no other process sees.

    Args:
        path: Lock file, created if missing. Its text says who holds the lock.

    Raises:
        StoreError: If the file system does not support locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        mine = _take(handle, path)
        if mine:
            _held.add(handle)
            _sign(handle)
        yield mine
    finally:
        _held.discard(handle)
        os.close(handle)


def is_claimed(path: Path) -> bool:
    """Whether any process, including this one, holds the lock on ``path``."""
    try:
        handle = os.open(path, os.O_RDONLY)  # enough for a shared lock
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def holder(path: Path) -> dict[str, Any]:
    """Return host, pid and time of the last lock on ``path``; empty if unknown."""
    try:
        signed = load_json(path)
    except (OSError, ValueError):  # being written, or never written
        return {}
    return signed if isinstance(signed, dict) else {}


def held_by(path: Path) -> str:
    """Describe the holder of the lock on ``path``, for messages."""
    known = holder(path)
    if not known:
        return "another process"
    return f"process {known.get('pid')} on {known.get('host')} since {known.get('since')}"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock on ``path`` and hold it inside the ``with``, for short operations."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _take(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked ({error.strerror}): results must lie on a file system that "
            "knows locks (flock)"
        ) from error
    return True


def _sign(handle: int) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    signed = {"host": socket.gethostname(), "pid": os.getpid(), "since": now}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(signed).encode(), 0)
