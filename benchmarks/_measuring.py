"""Measure time and memory of the variants of a group; failures are recorded in their rows."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from _groups import Group
from _timing import Clock, capture, peak_bytes, saved_bytes, summary, time_in_rounds
from _variants import GAP, iterations_of
from tqdm import tqdm

from sumpool.studies.cost.step_timing import Step

Row = dict[str, Any]

#: Steps before anything is timed; memory is measured on further ones.
WARM_UPS = {"cpu": 1, "cuda": 3}


def measure(group: Group, clock: Clock, bar: tqdm) -> list[Row]:
    """Measure time and memory of every variant of ``group``; errors are recorded in its row."""
    rows = {name: empty_row(group, name) for name in group.names}
    clock = replace(clock, seconds=clock.seconds * group.longer)
    steps: dict[str, Step] = {}
    for name, row in rows.items():
        bar.set_postfix_str(f"{group}: {name}"[:90], refresh=False)
        try:
            step = group.build(name)
            for _ in range(WARM_UPS[clock.device.type]):
                step()
            clock.synchronize()
            row["input_sets"] = len(step.inputs)
            row["peak_bytes"] = peak_bytes(step)
            if not name.endswith("-compiled"):
                row["saved_bytes"] = saved_bytes(step)
            steps[name] = step
        except Exception as error:
            note(row, "error", error)
        bar.update()
    fill(rows, "eager", dict(steps), clock)
    if clock.device.type == "cuda":
        replays: dict[str, Callable[[], object]] = {}
        for name, step in steps.items():
            bar.set_postfix_str(f"{group}: graph of {name}"[:90], refresh=False)
            try:
                replays[name] = capture(step)
            except Exception as error:
                note(rows[name], "graph_error", error)
        fill(rows, "graph", replays, clock)
    return list(rows.values())


def fill(
    rows: dict[str, Row], mode: str, calls: dict[str, Callable[[], object]], clock: Clock
) -> None:
    """Time ``calls`` in rounds and write the outcome into their rows."""
    timed = time_in_rounds(calls, clock)
    for name, error in timed.failures.items():
        note(rows[name], "error" if mode == "eager" else "graph_error", error)
    for name, times in timed.times.items():
        # A graph holds one step per input set.
        steps = rows[name]["input_sets"] if mode == "graph" else 1
        baseline = timed.times.get(GAP)
        rows[name][mode] = summary(
            [t / steps for t in times],
            None if baseline is None else [t / steps for t in baseline],
            timed.repeats[name],
        )


def empty_row(group: Group, name: str) -> Row:
    """Create the row of a variant, with all fields, before anything is measured."""
    k = iterations_of(name)
    at = {**asdict(group.size), "n": group.size.h * group.size.w, "k": k}
    return {
        "section": group.section,
        "axis": group.axis,
        "at": at[group.axis] if group.axis else None,
        "variant": name,
        "k": k,
        "dtype": group.dtype,
        "size": asdict(group.size),
        "model": group.model,
        "input_sets": None,
        "eager": None,
        "graph": None,
        "peak_bytes": None,
        "saved_bytes": None,
        "error": None,
        "graph_error": None,
        "traceback": None,
    }


def note(row: Row, where: str, error: BaseException) -> None:
    """Record an error in ``row``."""
    lines = str(error).strip().splitlines() or [""]
    row[where] = f"{type(error).__name__}: {lines[0][:200]}"
    row["traceback"] = "".join(traceback.format_exception(error))
