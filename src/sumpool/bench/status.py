"""Progress of a benchmark, read from its folder alone."""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sumpool.bench.cells import cell_name, group_of
from sumpool.bench.changed_options import changed_options, set_apart
from sumpool.bench.estimate import format_duration, total_seconds
from sumpool.bench.planned_cells import PlannedCell, read_grid
from sumpool.bench.store.rows import BenchRow
from sumpool.bench.store.store import RUN, BenchFailure, BenchStore
from sumpool.protocols import Member
from sumpool.report.run.folder import LOG
from sumpool.report.tables import Table
from sumpool.system.files import StoreError
from sumpool.system.wording import counted
from sumpool.training.config import TrainConfig, with_options

#: States of a cell: finished, held by a process, failed in its last attempt, or none of these.
STATES = ("done", "running", "failed", "waiting")


@dataclass(frozen=True)
class GroupStatus:
    """Progress of one group: cells that differ only in fold and seed.

    Attributes:
        title: Protocol, data set, network, loss and method.
        changed: Options that differ from protocol and method.
        counts: Number of cells by state.
        seconds: Mean duration of the finished cells; None without any.
    """

    title: tuple[str, str, str, str, str]
    changed: Mapping[str, str]
    counts: Mapping[str, int]
    seconds: float | None


@dataclass(frozen=True)
class RunningCell:
    """A cell that a process holds.

    Attributes:
        cell: The cell.
        host: Host of the process.
        pid: ID of the process; None if unknown.
        elapsed: Seconds since the process claimed the cell; None if unknown.
        says: Step and speed, or the last line of its log.
    """

    cell: PlannedCell
    host: str
    pid: int | None
    elapsed: float | None
    says: str


@dataclass(frozen=True)
class BenchStatus:
    """Progress of a benchmark.

    Attributes:
        groups: Progress of each group.
        running: Running cells.
        failures: Failed cells, each with its last failure.
        damaged: Files in the folder of rows that are not valid rows.
        seconds_left: Estimated seconds until all cells are finished with as many running as now;
            None if a cell has no estimate.
    """

    groups: list[GroupStatus]
    running: list[RunningCell]
    failures: list[tuple[PlannedCell, BenchFailure]]
    damaged: list[Path]
    seconds_left: float | None

    def text(self) -> str:
        """Format the status as tables for a terminal."""
        count = {state: sum(group.counts[state] for group in self.groups) for state in STATES}
        total = sum(count.values())
        head = f"{counted(total, 'cell')}: " + ", ".join(
            f"{number} {it}" for it, number in count.items()
        )
        if count["done"] < total and self.seconds_left is None:
            head += "; no estimate of the time left: no cell on the same data is finished yet"
        elif count["done"] < total:
            head += f"; about {_duration(self.seconds_left)} left"
        parts = [head, _groups_table(self.groups)]
        if self.running:
            parts.append(_running_table(self.running).text())
        for cell, failure in self.failures:
            parts.append(f"failed in attempt {failure.attempt}: {cell.name}\n  {failure.error}")
        parts += [f"not a row, left out: {path}" for path in self.damaged]
        return "\n\n".join(parts)


def bench_status(store: BenchStore) -> BenchStatus:
    """Return the progress of the benchmark in ``store``.

    Raises:
        StoreError: If ``store`` holds no benchmark.
    """
    rows = {row.id: row for row in store.rows()}
    cells = {cell.id: cell for cell in read_grid(store)}
    cells |= _unplanned(row for row in rows.values() if row.id not in cells)
    if not cells:
        raise StoreError(f"{store.folder} holds no benchmark: it has neither a grid nor rows")
    failures = {failure.id: failure for failure in store.failures()}
    states = dict.fromkeys(cells, "waiting")
    for id in cells:
        if id in rows:
            states[id] = "done"
        elif store.is_claimed(id):
            states[id] = "running"
        elif id in failures:
            states[id] = "failed"
    running = [_running(store, cells[id]) for id, state in states.items() if state == "running"]
    left = [cells[id] for id, state in states.items() if state in ("running", "waiting")]
    return BenchStatus(
        groups=_groups(cells, states, rows),
        running=running,
        failures=[(cells[id], failures[id]) for id, state in states.items() if state == "failed"],
        damaged=store.damaged(),
        seconds_left=_seconds_left(list(rows.values()), left, running),
    )


def _groups(
    cells: Mapping[str, PlannedCell], states: Mapping[str, str], rows: Mapping[str, BenchRow]
) -> list[GroupStatus]:
    members: dict[str, list[PlannedCell]] = {}
    for cell in cells.values():
        members.setdefault(cell.group, []).append(cell)
    groups = []
    for there in members.values():
        seconds = [rows[cell.id].duration_s for cell in there if cell.id in rows]
        mean = statistics.fmean(seconds) if seconds else None
        counts = Counter(states[cell.id] for cell in there)
        groups.append(GroupStatus(there[0].key, there[0].changed, counts, mean))
    return groups


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
    """Return step and speed from the log of a run; None if it has no line yet."""
    try:
        with log.open(newline="", encoding="utf-8") as file:
            lines = [(int(row["step"]), float(row["seconds"])) for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError, KeyError):  # missing, or its last line is torn
        return None
    if not lines:
        return None
    (step, now), (earlier, before) = lines[-1], lines[-2] if len(lines) > 1 else (0, 0.0)
    return f"step {step}, {(step - earlier) / max(now - before, 1e-9):.1f} steps/s"


def _unplanned(rows: Iterable[BenchRow]) -> dict[str, PlannedCell]:
    """Return the cells of rows that were copied from another benchmark, by identity."""
    changed: dict[str, dict[str, str]] = {}
    found = {}
    for row in rows:
        name = cell_name(row.key, Member(row.fold, row.seed))
        group = group_of(row.protocol, row.data_set, row.options)
        if group not in changed:
            changed[group] = changed_options(row.protocol, with_options(TrainConfig(), row.options))
        where = (row.id, name, group, row.fold, row.seed)
        found[row.id] = PlannedCell(*row.key, *where, changed[group])
    return found


def _groups_table(groups: Sequence[GroupStatus]) -> str:
    shared, own = set_apart([it.changed for it in groups])
    column = ["set"] if any(own) else []
    header = ("protocol", "data", "backbone", "loss", "method", *column, *STATES, "mean duration")
    rows = [
        [*it.title, *options, *(str(it.counts[state]) for state in STATES), _duration(it.seconds)]
        for it, options in zip(groups, own, strict=True)
    ]
    return "\n\n".join([Table(header, rows).text(), *([shared] if shared else [])])


def _running_table(running: Sequence[RunningCell]) -> Table:
    rows = [
        [it.cell.name, _duration(it.elapsed), it.says, f"{it.host} {it.pid or '?'}"]
        for it in running
    ]
    return Table(("running", "for", "at", "process"), rows)


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)
