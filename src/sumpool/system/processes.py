"""A pool of processes that can be ended at once, and whose death is noticed."""

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
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from sumpool.system.memory import reuse_freed_memory
from sumpool.system.signals import shielded_children, show_stacks_on_request

T = TypeVar("T")
R = TypeVar("R")

#: Seconds that a process is given to end before it is killed.
PATIENCE = 5.0
#: Tells torch.compile how many processes compile kernels; 1 is none beside its own.
COMPILERS = "TORCHINDUCTOR_COMPILE_THREADS"
#: Number of the request to the kernel, <linux/prctl.h>: a signal at the death of the parent.
_PR_SET_PDEATHSIG = 1


class WorkerError(Exception):
    """A process ended in the middle of its work; the message says how."""


class Done(NamedTuple, Generic[T, R]):
    """A finished item.

    Attributes:
        item: What was worked on.
        found: The result; None if it failed.
        failure: The error; None if it succeeded.
    """

    item: T
    found: R | None
    failure: Exception | None


def run_in_processes(
    work: Callable[[T], R], items: Sequence[T], jobs: int, *, threads: int = 1
) -> Generator[Done[T, R], None, None]:
    """Apply ``work`` to ``items`` in ``jobs`` processes; yields results as they are finished.

    An item that fails is yielded with its failure, and the others continue in other processes: what
    broke one, such as an error of CUDA, would fail all that follow in it. A process that dies takes
    one item with it and is replaced. When the iterator is closed, or interrupted, the
    processes are ended and unfinished items are lost. They end with this process too, however it
    ends: see :func:`terminate_with_parent`.

    Args:
        work: A function of a module, or a partial of one: it is sent to the processes.
        items: What to apply it to.
        jobs: How many processes.
        threads: Threads of torch in each.
    """
    context = multiprocessing.get_context("spawn")
    left = collections.deque(items)
    busy: dict[Connection, tuple[BaseProcess, T]] = {}

    def fill_up() -> None:
        while left and len(busy) < jobs:
            here, there = context.Pipe()
            given = (there, work, threads, os.getpid())
            process = context.Process(target=_serve, args=given, daemon=True)
            with shielded_children(signal.SIGINT):  # whoever started them ends them, with TERM
                process.start()
            there.close()
            item = left.popleft()
            busy[here] = process, item
            with suppress(OSError):  # it has died already, and takes this item with it
                here.send(item)

    def give(connection: Connection, process: BaseProcess) -> None:
        item = left.popleft()
        try:
            connection.send(item)
        except OSError:  # it died after its answer: the item is for its replacement
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
                    # Before this answer is looked at, which may take long.
                    if left and failure is None:
                        give(ready, process)
                    else:
                        ready.close()
                finally:
                    yield Done(item, found, failure)  # whatever becomes of the next item
            fill_up()
    finally:
        for process, _ in busy.values():
            process.terminate()
        for process, _ in busy.values():
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()


def run_here(work: Callable[[T], R], items: Sequence[T]) -> Generator[Done[T, R], None, None]:
    """What :func:`run_in_processes` does, one item after the other in this process."""
    for item in items:
        try:
            done: Done[T, R] = Done(item, work(item), None)
        except Exception as error:
            # Otherwise its models would stay in memory, beside those of the next items.
            traceback.clear_frames(error.__traceback__)
            done = Done(item, None, error)
        yield done


def terminate_with_parent(parent: int) -> None:
    """Have the kernel send this process TERM when the process ``parent``, its own, has died.

    Linux only; elsewhere nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() != parent:  # it died before this was asked for
        os.kill(os.getpid(), signal.SIGTERM)


def _serve(connection: Connection, work: Callable[[Any], Any], threads: int, parent: int) -> None:
    terminate_with_parent(parent)
    reuse_freed_memory()
    torch.set_num_threads(threads)
    show_stacks_on_request()
    # In this process: torch would start a pool for every core, and waits forever if one dies.
    os.environ.setdefault(COMPILERS, "1")
    while True:
        try:
            item = connection.recv()
        except EOFError:  # there is nothing more to do
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = work(item), None
        except Exception as error:
            answer = None, _sendable(error)
        except KeyboardInterrupt:  # a signal asked it to end: no traceback is needed
            sys.exit(128 + signal.SIGINT)
        connection.send(answer)


def _sendable(error: Exception) -> Exception:
    """``error`` if it survives the way to another process, else its text; with its traceback."""
    trace = "".join(traceback.format_exception(error))
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever keeps it from being sent
        copy = WorkerError(f"{type(error).__name__}: {error}")
    copy.add_note(trace)
    return copy
