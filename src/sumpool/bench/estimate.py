"""How long the remaining cells will take, estimated from the finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from sumpool.bench.cells import BenchCell
from sumpool.bench.planned_cells import PlannedCell
from sumpool.bench.store.rows import BenchRow


def expected_seconds(rows: Sequence[BenchRow], cell: BenchCell | PlannedCell) -> float | None:
    """Mean duration of the finished cells most like ``cell``; None if there are none.

    Cells with the same network, loss and method on the same data set come first, then those with
    the same network there, then all there. Cells on other data say nothing.
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
    """Seconds that ``cells`` take one after the other, and for how many there is no estimate."""
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
    """A duration in two units at most.

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
