"""A process pool that can be terminated at once and that detects dead workers."""

from __future__ import annotations

import collections
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from sumpool.system.memory import reuse_freed_memory
from sumpool.system.signals import shielded_children, show_stacks_on_request

T = TypeVar("T")
R = TypeVar("R")

#: Seconds a process has to terminate before it is killed.
PATIENCE = 5.0
#: Number of processes in which torch.compile compiles kernels; 1 uses only its own.
COMPILERS = "TORCHINDUCTOR_COMPILE_THREADS"
#: Option number of ``prctl`` (<linux/prctl.h>) that requests a signal when the parent dies.
_PR_SET_PDEATHSIG = 1


class WorkerError(Exception):
    """A worker process died, or its error could not be sent back; the message says how."""


class Done(NamedTuple, Generic[T, R]):
    """Outcome of an item.

    Attributes:
        item: The item.
        found: Its result; None if it failed.
        failure: Its error; None if it succeeded.
    """

    item: T
    found: R | None
    failure: Exception | None


class Executor(Protocol[T, R]):
    """Applies a function to items in parallel: in processes, or on a cluster."""

    def __call__(
        self, work: Callable[[T], R], items: Sequence[T], /
    ) -> Generator[Done[T, R], None, None]:
        """Apply ``work`` to ``items``, and yield each as it finishes or fails."""
        ...


def run_in_processes(
    work: Callable[[T], R], items: Sequence[T], jobs: int, *, threads: int = 1
) -> Generator[Done[T, R], None, None]:
    """Apply ``work`` to ``items`` in ``jobs`` processes; yields outcomes as items finish.

    A failed item is yielded with its error, and its process is replaced: the cause, such as a CUDA
    error, could make all later items in it fail. A process that dies loses one item and is replaced
    as well. When the iterator is closed or interrupted, the processes are terminated and unfinished
    items are lost. They also end with this process, however it ends: see
    :func:`terminate_with_parent`.

    Args:
        work: Module-level function, or a partial of one: it is pickled.
        items: Arguments of ``work``.
        jobs: Number of processes.
        threads: Torch threads per process.
    """
    context = multiprocessing.get_context("spawn")
    left = collections.deque(items)
    busy: dict[Connection, tuple[BaseProcess, T]] = {}

    def fill_up() -> None:
        while left and len(busy) < jobs:
            here, there = context.Pipe()
            given = (there, work, threads, os.getpid())
            process = context.Process(target=_serve, args=given, daemon=True)
            with shielded_children(signal.SIGINT):  # this process ends its workers, with TERM
                process.start()
            there.close()
            item = left.popleft()
            busy[here] = process, item
            with suppress(OSError):  # it has died already; this item is lost
                here.send(item)

    def give(connection: Connection, process: BaseProcess) -> None:
        item = left.popleft()
        try:
            connection.send(item)
        except OSError:  # it died after its answer: the replacement gets the item
            left.appendleft(item)
            connection.close()
        else:
            busy[connection] = process, item

    try:
        fill_up()
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                process, item = busy.pop(ready)
                try:
                    found, failure = ready.recv()
                except (EOFError, OSError):
                    ready.close()
                    process.join()
                    failure = WorkerError(f"its process ended with exit code {process.exitcode}")
                    yield Done(item, None, failure)
                    continue
                try:
                    # Before the caller handles this answer, which may take long.
                    if left and failure is None:
                        give(ready, process)
                    else:
                        ready.close()
                finally:
                    yield Done(item, found, failure)  # even if sending the next item fails
            fill_up()
    finally:
        for process, _ in busy.values():
            process.terminate()
        for process, _ in busy.values():
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()


def run_here(work: Callable[[T], R], items: Sequence[T]) -> Generator[Done[T, R], None, None]:
    """Like :func:`run_in_processes`, but sequentially in this process."""
    for item in items:
        try:
            done: Done[T, R] = Done(item, work(item), None)
        except Exception as error:
            # Otherwise the traceback would keep the models of this item in memory.
            traceback.clear_frames(error.__traceback__)
            done = Done(item, None, error)
        yield done


def terminate_with_parent(parent: int) -> None:
    """Have the kernel send TERM to this process when its parent, the process ``parent``, dies.

    Does nothing on systems other than Linux.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() != parent:  # it died before the request
        os.kill(os.getpid(), signal.SIGTERM)


def _serve(connection: Connection, work: Callable[[Any], Any], threads: int, parent: int) -> None:
    terminate_with_parent(parent)
    reuse_freed_memory()
    torch.set_num_threads(threads)
    show_stacks_on_request()
    # Otherwise torch starts a compile process per core, and waits forever if one dies.
    os.environ.setdefault(COMPILERS, "1")
    while True:
        try:
            item = connection.recv()
        except EOFError:  # no more items
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = work(item), None
        except Exception as error:
            failure = picklable(error)
            failure.add_note("".join(traceback.format_exception(error)))
            answer = None, failure
        except KeyboardInterrupt:  # ended by a signal: no traceback needed
            sys.exit(128 + signal.SIGINT)
        connection.send(answer)


def picklable(error: Exception) -> Exception:
    """Return ``error``, or a WorkerError with its text if it does not survive pickling."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickling may raise anything
        return WorkerError(f"{type(error).__name__}: {error}")
    return error
