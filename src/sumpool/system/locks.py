"""Locks on files, held by one process at a time.

They are the kernel's (``flock``) and end with the process, however it ends: a killed process leaves
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

#: Descriptors of the locks that this process holds.
_held: set[int] = set()


def _let_go_in_child() -> None:
    # A forked process, such as one that decodes images, shares the lock and would keep it after
    # its parent was killed. Closing its copy leaves that of the parent as it is.
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Hold the lock on ``path`` inside the ``with``; gives False if another process has it.

    The file stays when the lock is given back: a process that waits for a removed file's lock would
    hold one that nobody else sees.

    Args:
        path: The file; made if missing. It says who holds the lock, for people to read.

    Raises:
        StoreError: If the file system knows no locks.
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
    """Whether a process, this one included, holds the lock on ``path``."""
    try:
        handle = os.open(path, os.O_RDWR)
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
    """Who last took the lock on ``path``: host, pid and since when; empty if that is not known."""
    try:
        signed = load_json(path)
    except (OSError, ValueError):  # being written, or never written
        return {}
    return signed if isinstance(signed, dict) else {}


def held_by(path: Path) -> str:
    """Who holds the lock on ``path``, in words."""
    known = holder(path)
    if not known:
        return "another process"
    return f"process {known.get('pid')} on {known.get('host')} since {known.get('since')}"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock on ``path`` and hold it inside the ``with``: for short changes."""
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
