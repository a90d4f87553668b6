"""Executor that runs cells in parallel processes on this machine."""

from __future__ import annotations

import faulthandler
import functools
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sumpool.system.cores import usable_cores
from sumpool.system.executors.devices import take_gpu
from sumpool.system.processes import Done, run_in_processes

T = TypeVar("T")
R = TypeVar("R")

#: Exit status of a process that can no longer use its device.
LOST = 70


@dataclass(frozen=True)
class LocalProcesses:
    """Runs cells in ``jobs`` processes, which end with the process that started them.

    On Linux the kernel sends TERM to each process when the runner dies: the run writes a checkpoint
    and ends. Elsewhere it finishes its cell, whose lock prevents others from running it meanwhile.

    Args:
        jobs: Number of cells that run in parallel.
        threads: Torch threads per process; None divides the cores among the processes.
        gpus: Number of GPUs of this machine to spread the processes over.

    Raises:
        ValueError: If ``jobs`` or ``threads`` is less than 1, or ``gpus`` less than 0.
    """

    jobs: int = 1
    threads: int | None = None
    gpus: int = 0

    def __post_init__(self) -> None:
        """Validate the arguments."""
        for name in ("jobs", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.gpus < 0:
            raise ValueError(f"gpus must be at least 0, got {self.gpus}")

    def __call__(
        self, work: Callable[[T], R], cells: Sequence[T]
    ) -> Generator[Done[T, R], None, None]:
        """Apply ``work`` to ``cells``, and yield each outcome as it finishes.

        When the iterator is closed, the processes are terminated, and killed after a few seconds.
        """
        jobs = min(self.jobs, max(1, len(cells)))
        threads = self.threads or max(1, usable_cores() // jobs)
        bound = functools.partial(_bound_to, self.gpus, work)
        return run_in_processes(bound, cells, jobs, threads=threads)


def _bound_to(gpus: int, work: Callable[[T], R], cell: T) -> R:
    _prepare(gpus)
    try:
        return work(cell)
    except Exception as error:
        if _device_is_lost(error):
            # The next cell would fail here too: a new process replaces this one.
            os._exit(LOST)
        raise
    finally:
        _release_memory()


@functools.cache
def _prepare(gpus: int) -> None:
    """Take a GPU and allow child processes, once per process."""
    take_gpu(gpus)
    faulthandler.enable(file=2)  # a crash inside a library leaves a trace in the cell's log
    # Data loading needs child processes, which daemons may not have; this process ends with its
    # parent by other means. They are forked, as in `sumpool train`: spawning takes seconds.
    multiprocessing.current_process().daemon = False
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)


def _device_is_lost(error: Exception) -> bool:
    # After such an error all CUDA calls of the process fail, but not after running out of memory.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return not isinstance(error, torch.OutOfMemoryError) and "CUDA error" in str(error)


def _release_memory() -> None:
    # Makes the cell's device memory available to the other processes.
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
