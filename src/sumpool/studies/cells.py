"""Cells of a study, computed in parallel and stored as they finish."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.system.cores import usable_cores
from sumpool.system.fabric_logging import quiet_fabric
from sumpool.system.files import StoreError
from sumpool.system.processes import Done, run_here, run_in_processes
from sumpool.system.rows import ResultStore, Row


class CellResult(NamedTuple):
    """Result of one cell."""

    metrics: Mapping[str, float]  #: Metrics by name
    arrays: Mapping[str, NDArray[Any]] | None = None  #: Arrays for figures


#: Computes a cell. Must be picklable: a module-level function, or a partial of one.
Work = Callable[[dict[str, Any]], CellResult]
#: Metrics of a cell, its duration in seconds, and its arrays.
Timed = tuple[Mapping[str, float], float, Mapping[str, NDArray[Any]] | None]
#: A cell that finished or failed.
DoneCell = Done[dict[str, Any], Timed]


def run_cells(
    store: ResultStore,
    cells: Sequence[dict[str, Any]],
    work: Work,
    *,
    jobs: int | None = None,
    quick: bool = False,
    progress: bool = True,
) -> list[Row]:
    """Compute the cells missing from ``store`` and return the rows of all cells, in order.

    A cell is stored as soon as it finishes, so an interruption loses no finished cell. If a cell
    fails or cannot be stored, the others are still computed, and the first failure is raised at the
    end.

    Cells run in ``jobs`` parallel processes; 1 runs them in this process. None means one per core
    or, if ``quick``, 1, since a quick cell takes less time than starting a process.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    missing = [cell for cell in cells if store.find(cell) is None]
    cores = usable_cores()
    jobs = min(jobs or (1 if quick else cores), max(1, len(missing)))
    with tqdm(total=len(missing), desc=store.study, unit="cell", disable=not progress) as bar:
        if jobs == 1:
            finished = run_here(partial(_timed, work), missing)
        else:
            threads = max(1, cores // jobs)
            finished = run_in_processes(partial(_timed, work), missing, jobs, threads=threads)
        _store_all(store, finished, bar)
    rows = [store.find(cell) for cell in cells]
    return [row for row in rows if row is not None]


def _store_all(store: ResultStore, finished: Generator[DoneCell, None, None], bar: Any) -> None:
    """Store cells as they finish, then raise the first failure, if any."""
    failures = []
    with closing(finished):
        for cell, result, failure in finished:
            if failure is None:
                assert result is not None
                try:
                    store.add(cell, *result)
                except StoreError as error:
                    failure = error
            if failure is None:
                bar.update()
            else:
                failures.append((cell, failure))
                bar.set_postfix_str(f"{len(failures)} failed")
    if failures:
        cell, first = failures[0]
        first.add_note(
            f"in the cell {cell}, the first of {len(failures)} that failed; what is "
            "finished is stored, and the same command computes the rest"
        )
        raise first


def _timed(work: Work, cell: dict[str, Any]) -> Timed:
    with quiet_fabric():
        begun = time.perf_counter()
        metrics, arrays = work(cell)
        return metrics, time.perf_counter() - begun, arrays
