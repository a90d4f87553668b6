"""The benchmark: grids of trainings under a protocol, run side by side, kept row by row.

Importing this package is cheap; torch is imported with the first name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumpool.bench.cells import BenchCell, method_label
    from sumpool.bench.checks import check_cells
    from sumpool.bench.execute import CellEnd, CellInterruptedError, run_cell
    from sumpool.bench.grid import Grid, GridError, expand
    from sumpool.bench.local import LocalProcesses
    from sumpool.bench.rows import BenchRow
    from sumpool.bench.runner import Executor, Summary, run_bench
    from sumpool.bench.scoring import Scored, score_store
    from sumpool.bench.sources import DataSource, find_data
    from sumpool.bench.status import bench_status
    from sumpool.bench.store import BenchFailure, BenchStore

__all__ = [
    "BenchCell",
    "BenchFailure",
    "BenchRow",
    "BenchStore",
    "CellEnd",
    "CellInterruptedError",
    "DataSource",
    "Executor",
    "Grid",
    "GridError",
    "LocalProcesses",
    "Scored",
    "Summary",
    "bench_status",
    "check_cells",
    "expand",
    "find_data",
    "method_label",
    "run_bench",
    "run_cell",
    "score_store",
]

_HOMES = {
    "BenchCell": "cells",
    "BenchFailure": "store",
    "BenchRow": "rows",
    "BenchStore": "store",
    "CellEnd": "execute",
    "CellInterruptedError": "execute",
    "DataSource": "sources",
    "Executor": "runner",
    "Grid": "grid",
    "GridError": "grid",
    "LocalProcesses": "local",
    "Scored": "scoring",
    "Summary": "runner",
    "bench_status": "status",
    "check_cells": "checks",
    "expand": "grid",
    "find_data": "sources",
    "method_label": "cells",
    "run_bench": "runner",
    "run_cell": "execute",
    "score_store": "scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
