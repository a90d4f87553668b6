"""Estimate the duration of the remaining cells from that of the finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from sumpool.bench.cells import BenchCell
from sumpool.bench.planned_cells import PlannedCell
from sumpool.bench.store.rows import BenchRow


def expected_seconds(rows: Sequence[BenchRow], cell: BenchCell | PlannedCell) -> float | None:
    """Return the mean duration of the finished cells most similar to ``cell``; None without any.

    On the same data set, cells with the same network, loss and method come first, then those with
    the same network, then all others. Cells on other data sets are not used.
    """
    on_data = [row for row in rows if row.data_set == cell.data_set]
    with_network = [row for row in on_data if row.backbone == cell.backbone]
    alike = [row for row in with_network if (row.loss, row.method) == (cell.loss, cell.method)]
    for rows_there in (alike, with_network, on_data):
        if rows_there:
            return statistics.fmean(row.duration_s for row in rows_there)
    return None


def total_seconds(
    rows: Sequence[BenchRow], cells: Iterable[BenchCell | PlannedCell]
) -> tuple[float, int]:
    """Return the total duration of ``cells`` in seconds, and how many have no estimate."""
    expected: dict[tuple[str, str, str, str], float | None] = {}
    total, unknown = 0.0, 0
    for cell in cells:
        key = (cell.data_set, cell.backbone, cell.loss, cell.method)
        if key not in expected:
            expected[key] = expected_seconds(rows, cell)
        seconds = expected[key]
        if seconds is None:
            unknown += 1
        else:
            total += seconds
    return total, unknown


def format_duration(seconds: float) -> str:
    """Format a duration with at most two units.

    Example:
        >>> [format_duration(seconds) for seconds in (42, 600, 7300, 200_000)]
        ['42 s', '10 min', '2 h 02 min', '2 d 8 h']
    """
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
