"""The progress of a benchmark, read from its folder alone."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sumpool.bench.cells import cell_name, group_of
from sumpool.bench.estimate import format_duration, total_seconds
from sumpool.bench.planned_cells import PlannedCell, read_grid
from sumpool.bench.store.rows import BenchRow
from sumpool.bench.store.store import RUN, BenchFailure, BenchStore
from sumpool.protocols import Member
from sumpool.report.run.folder import LOG
from sumpool.report.tables import Table
from sumpool.system.files import StoreError


@dataclass(frozen=True)
class GroupStatus:
    """The progress of one group: cells that differ only in fold and seed.

    Attributes:
        group: Identity of the group.
        title: Protocol, data set, network, loss and method.
        done: Finished cells.
        running: Cells that a process holds.
        failed: Cells whose last attempt failed and that no process holds.
        waiting: All others.
        seconds: Mean duration of the finished ones; None if there is none.
    """

    group: str
    title: tuple[str, str, str, str, str]
    done: int
    running: int
    failed: int
    waiting: int
    seconds: float | None


@dataclass(frozen=True)
class RunningCell:
    """A cell that a process holds.

    Attributes:
        cell: The cell.
        host: The machine of the process.
        pid: The process; None if unknown.
        elapsed: Seconds since it took the cell; None if unknown.
        says: Step and speed, or the last line of its log.
    """

    cell: PlannedCell
    host: str
    pid: int | None
    elapsed: float | None
    says: str


@dataclass(frozen=True)
class BenchStatus:
    """The progress of a benchmark.

    Attributes:
        groups: By group.
        running: The cells that run.
        failures: The last failure of those that failed, with their cells.
        damaged: Files among the rows that are not rows.
        seconds_left: Seconds until all is finished if as many cells run as now; None if no cell on
            the same data is finished.
    """

    groups: list[GroupStatus]
    running: list[RunningCell]
    failures: list[tuple[PlannedCell, BenchFailure]]
    damaged: list[Path]
    seconds_left: float | None

    def text(self) -> str:
        """The status as tables for a terminal."""
        count = {
            name: sum(getattr(group, name) for group in self.groups)
            for name in ("done", "running", "failed", "waiting")
        }
        total = sum(count.values())
        parts = [", ".join(f"{number} {name}" for name, number in count.items())]
        parts[0] = f"{total} cells: {parts[0]}"
        if count["done"] < total:
            parts[0] += f"; {self._left()}"
        parts.append(_groups_table(self.groups).text())
        if self.running:
            parts.append(_running_table(self.running).text())
        for cell, failure in self.failures:
            parts.append(f"failed in attempt {failure.attempt}: {cell.name}\n  {failure.error}")
        parts += [f"not a row, left out: {path}" for path in self.damaged]
        return "\n\n".join(parts)

    def _left(self) -> str:
        if self.seconds_left is None:
            return "no estimate of the time left: no cell on the same data is finished yet"
        return f"about {format_duration(self.seconds_left)} left"


def bench_status(store: BenchStore) -> BenchStatus:
    """The progress of the benchmark in ``store``.

    Raises:
        StoreError: If there is none.
    """
    rows = store.rows()
    done = {row.id: row for row in rows}
    cells = {cell.id: cell for cell in (*read_grid(store), *map(_of_row, rows))}
    if not cells:
        raise StoreError(f"{store.folder} holds no benchmark: it has neither a grid nor rows")
    failures = {failure.id: failure for failure in store.failures()}
    claimed = {id for id in cells if id not in done and store.is_claimed(id)}
    failed = {id for id in failures if id in cells and id not in claimed}
    left = [cell for cell in cells.values() if cell.id not in done and cell.id not in failed]
    running = [_running(store, cells[id]) for id in cells if id in claimed]
    return BenchStatus(
        groups=_groups(cells.values(), done, claimed, failed),
        running=running,
        failures=[(cells[id], failures[id]) for id in cells if id in failed],
        damaged=store.damaged(),
        seconds_left=_seconds_left(rows, left, running),
    )


def _groups(
    cells: Iterable[PlannedCell], done: dict[str, BenchRow], running: set[str], failed: set[str]
) -> list[GroupStatus]:
    members: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        members.setdefault(cell.group, []).append(cell)
    found = []
    for group, there in members.items():
        finished = [done[cell.id].duration_s for cell in there if cell.id in done]
        runs = sum(cell.id in running for cell in there)
        fails = sum(cell.id in failed for cell in there)
        found.append(
            GroupStatus(
                group,
                there[0].key,
                len(finished),
                runs,
                fails,
                len(there) - len(finished) - runs - fails,
                statistics.fmean(finished) if finished else None,
            )
        )
    return found


def _seconds_left(
    rows: Sequence[BenchRow], left: Sequence[PlannedCell], running: Sequence[RunningCell]
) -> float | None:
    seconds, unknown = total_seconds(rows, left)
    if unknown:
        return None
    spent = sum(min(cell.elapsed or 0.0, total_seconds(rows, [cell.cell])[0]) for cell in running)
    return (seconds - spent) / max(1, len(running))


def _running(store: BenchStore, cell: PlannedCell) -> RunningCell:
    holder = store.holder(cell.id)
    elapsed = None
    if "since" in holder:
        elapsed = (datetime.now(UTC) - datetime.fromisoformat(holder["since"])).total_seconds()
    says = _pace(store.cell_folder(cell.id) / RUN / LOG)
    if says is None:
        says = store.log_tail(cell.id, lines=1)[:60] or "begins"
    return RunningCell(cell, str(holder.get("host", "?")), holder.get("pid"), elapsed, says)


def _pace(log: Path) -> str | None:
    """Step and speed from the log of a run; None if it has no line yet."""
    try:
        with log.open(newline="", encoding="utf-8") as file:
            lines = [(int(row["step"]), float(row["seconds"])) for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError, KeyError):  # not there yet, or its last line is torn
        return None
    if not lines:
        return None
    (step, now), (earlier, before) = lines[-1], lines[-2] if len(lines) > 1 else (0, 0.0)
    return f"step {step}, {(step - earlier) / max(now - before, 1e-9):.1f} steps/s"


def _of_row(row: BenchRow) -> PlannedCell:
    name = cell_name(row.key, Member(row.fold, row.seed))
    group = group_of(row.protocol, row.data_set, row.options)
    return PlannedCell(*row.key, row.id, name, group, row.fold, row.seed)


def _groups_table(groups: Sequence[GroupStatus]) -> Table:
    header = ("protocol", "data", "backbone", "loss", "method")
    return Table(
        (*header, "done", "running", "failed", "waiting", "mean duration"),
        [
            [
                *group.title,
                *(str(it) for it in (group.done, group.running, group.failed, group.waiting)),
                "" if group.seconds is None else format_duration(group.seconds),
            ]
            for group in groups
        ],
    )


def _running_table(running: Sequence[RunningCell]) -> Table:
    return Table(
        ("running", "for", "at", "process"),
        [
            [
                it.cell.name,
                "" if it.elapsed is None else format_duration(it.elapsed),
                it.says,
                f"{it.host} {it.pid or '?'}",
            ]
            for it in running
        ],
    )
