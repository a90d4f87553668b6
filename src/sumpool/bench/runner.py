"""Run a grid: finished cells are skipped, failed ones are retried and then reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol

from sumpool.bench.cells import BenchCell
from sumpool.bench.execute import CellEnd, run_cell
from sumpool.bench.planned_cells import add_to_grid
from sumpool.bench.progress import GridBar
from sumpool.bench.store.store import BenchFailure, BenchStore
from sumpool.bench.summary import Summary
from sumpool.system import processes
from sumpool.system.executors.local import LocalProcesses as LocalProcesses
from sumpool.system.processes import Done, WorkerError

#: Seconds between checks of cells that run elsewhere.
LOOK_AGAIN = 5.0

Work = Callable[[BenchCell], CellEnd]


class Executor(processes.Executor[BenchCell, CellEnd], Protocol):
    """Runs cells in local processes or on a cluster."""


def run_bench(
    store: BenchStore,
    cells: Sequence[BenchCell],
    executor: Executor,
    *,
    retries: int = 1,
    progress: bool = True,
    work: Work | None = None,
    look_again: float = LOOK_AGAIN,
) -> Summary:
    """Run the cells without a row, and return once every cell has a row or has failed.

    Any number of runners can share a store. Cells held by another runner are postponed and checked
    again: if that runner died, this one resumes them.

    Args:
        store: Store of the rows.
        cells: Cells of the grid.
        executor: Runs the cells.
        retries: Number of retries of a failed cell.
        progress: Whether to show a progress bar.
        work: Function that runs a cell; None for :func:`sumpool.bench.execute.run_cell`.
        look_again: Seconds between checks of cells that run elsewhere.
    """
    if retries < 0:
        raise ValueError(f"retries must be at least 0, got {retries}")
    work = work or partial(run_cell, store.folder)
    add_to_grid(store, cells)
    summary = Summary()
    left: list[BenchCell] = []
    for cell in cells:
        (left if store.row(cell.id) is None else summary.elsewhere).append(cell)
    tried = dict.fromkeys((cell.id for cell in cells), 0)
    with GridBar(store, cells, summary, shown=progress) as bar:
        while left:
            held = {cell.id for cell in left if store.is_claimed(cell.id)}
            free = [cell for cell in left if cell.id not in held]
            put_off = [cell for cell in left if cell.id in held]
            again: list[BenchCell] = []
            with closing(_all_of(executor, work, free)) as finished:
                for cell, end, failure in finished:
                    if end is None:
                        tried[cell.id] += 1
                        noted = _note(store, cell, failure)
                        if tried[cell.id] <= retries:
                            again.append(cell)
                        else:
                            summary.failed.append((cell, noted))
                    elif end.state == "running elsewhere":
                        put_off.append(cell)
                    elif end.state == "done":
                        summary.done.append(cell)
                    else:
                        summary.elsewhere.append(cell)
                    bar.show(again=len(again), put_off=len(put_off))
            if put_off and not again:
                bar.show(put_off=len(put_off))
                time.sleep(look_again)
            left = again
            for cell in put_off:
                (left if store.row(cell.id) is None else summary.elsewhere).append(cell)
    return summary


def _all_of(
    executor: Executor, work: Work, cells: Sequence[BenchCell]
) -> Generator[Done[BenchCell, CellEnd], None, None]:
    """Yield the results of the executor; a cell without a result has failed."""
    missing = {cell.id: cell for cell in cells}
    if not cells:
        return
    with closing(executor(work, cells)) as finished:
        for done in finished:
            missing.pop(done.item.id, None)
            yield done
    for cell in missing.values():
        yield Done(cell, None, WorkerError("it was not run: the executor ended before"))


def _note(store: BenchStore, cell: BenchCell, failure: Exception | None) -> BenchFailure:
    error = "its process gave no answer" if failure is None else str(failure)
    if failure is not None and not isinstance(failure, WorkerError):
        error = f"{type(failure).__name__}: {error}"
    attempt = max(1, len(store.starts(cell.id)))
    return store.note_failure(cell.id, attempt, error, store.log_tail(cell.id))
