"""Redirect stdout, stderr and log messages of a process to the log of its cell."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sumpool.system.fabric_logging import quiet_fabric


@contextlib.contextmanager
def redirect_output(path: Path) -> Iterator[None]:
    """Append standard output, standard error and log messages to ``path`` inside the ``with``.

    The file descriptors are redirected, so output of C libraries and child processes is included.
    This affects the whole process.
    """
    with path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        ours = logging.getLogger("sumpool")
        level = ours.level
        root = logging.getLogger()
        others = root.handlers[:]
        with (
            _redirect_descriptors(file.fileno()),
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(file),
        ):
            # Existing handlers hold the old streams.
            root.handlers[:] = [handler]
            ours.setLevel(logging.INFO)
            try:
                with quiet_fabric():
                    yield
            finally:
                root.handlers[:] = others
                ours.setLevel(level)


@contextlib.contextmanager
def _redirect_descriptors(target: int) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(target, number)
        yield
    finally:
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
