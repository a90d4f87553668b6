"""The function that Ray workers run, and the reporting of its failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from sumpool.system.memory import reuse_freed_memory
from sumpool.system.processes import WorkerError, picklable
from sumpool.system.ray_nodes import look_at
from sumpool.system.wording import counted

T = TypeVar("T")
R = TypeVar("R")

#: Color codes in Ray's messages.
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def run_task(work: Callable[[T], R], cell: T, *, threads: int, witness: Path | None) -> R:
    """Apply ``work`` to ``cell`` in a Ray worker, which must see the file ``witness``.

    Raises:
        WorkerError: In place of an error that cannot be pickled.
    """
    reuse_freed_memory()
    torch.set_num_threads(threads)
    if witness is not None:
        look_at(witness)
    try:
        return work(cell)
    except Exception as error:
        failure = picklable(error)
        if failure is not error:
            raise failure from error
        raise


def failure_of(error: Any, retries: int) -> Exception:
    """Return the task's own error if ``ray.get`` raised one, else a description of how it ended."""
    trace = _COLOR.sub("", str(error))
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        cause.add_note(trace)
        return cause
    name, first = type(error).__name__, trace.strip().split("\n", 1)[0]
    again = "" if name == "TaskCancelledError" else f" (restarted {counted(retries, 'time')})"
    failure = WorkerError(f"{name}: {first}{again}")
    failure.add_note(trace)
    return failure
