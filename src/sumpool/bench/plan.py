"""The plan of a grid, for ``--dry-run``."""

from __future__ import annotations

from collections.abc import Sequence

from sumpool.bench.cells import BenchCell
from sumpool.bench.changed_options import changed_options, set_apart
from sumpool.bench.estimate import expected_seconds, format_duration, total_seconds
from sumpool.bench.store.store import BenchStore
from sumpool.report.tables import Table
from sumpool.system.wording import counted


def plan_text(store: BenchStore, cells: Sequence[BenchCell]) -> str:
    """Tabulate the cells by group, with how many are finished and how long the others will take.

    Estimates are mean durations of finished cells on the same data set, on any machine.
    """
    rows = store.rows()
    groups: dict[str, list[BenchCell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    firsts = [there[0] for there in groups.values()]
    shared, own = set_apart([changed_options(it.protocol, it.config) for it in firsts])
    lines = []
    for there, options in zip(groups.values(), own, strict=True):
        one = there[0]
        done = sum(store.row(cell.id) is not None for cell in there)
        each = expected_seconds(rows, one)
        lines.append(
            [
                *one.key,
                *options,
                _listed([cell.member.fold for cell in there]),
                _listed([cell.member.seed for cell in there]),
                str(len(there)),
                str(done),
                "?" if each is None else format_duration(each),
            ]
        )
    column = ["set"] if any(own) else []
    header = ("protocol", "data", "backbone", "loss", "method", *column, "folds", "seeds")
    table = Table((*header, "cells", "done", "per cell"), lines)
    left = [cell for cell in cells if store.row(cell.id) is None]
    words = [f"{counted(len(cells), 'cell')}, {len(cells) - len(left)} of them finished"]
    if shared:
        words.insert(0, shared)
    if left:
        words.append(_estimate(store, left))
    return f"{table.text()}\n\n" + "\n".join(words)


def _estimate(store: BenchStore, left: Sequence[BenchCell]) -> str:
    seconds, unknown = total_seconds(store.rows(), left)
    if not unknown:
        return f"the other {len(left)} take about {format_duration(seconds)}, one after the other"
    without = sorted(
        {cell.data_set for cell in left if expected_seconds(store.rows(), cell) is None}
    )
    there = f"no cell on {', '.join(without)} is finished yet in {store.folder}"
    if unknown == len(left):
        return f"there is no estimate of the time: {there}"
    return (
        f"{len(left) - unknown} of the other {len(left)} take about {format_duration(seconds)}, "
        f"one after the other; {there}, so there is no estimate for {unknown}"
    )


def _listed(values: Sequence[int | None]) -> str:
    return " ".join(str(it) for it in sorted({it for it in values if it is not None})) or "-"
