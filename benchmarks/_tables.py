"""Stored results as Markdown tables, and compared with their targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

Row = dict[str, Any]
MIB = 2**20


def markdown(results: dict[str, Any]) -> str:
    """Format all tables with their headings."""
    rows: list[Row] = results["rows"]
    machine = results["machine"]
    clocks = {"process_time": "processor time", "perf_counter": "wall clock"}
    clock = clocks.get(results["settings"]["clock"], results["settings"]["clock"])
    parts = [
        f"Measured on {machine['device_name']}, torch {machine['torch']}, {results['date'][:10]}: "
        f"medians of {results['settings']['rounds']} interleaved rounds ({clock}), in brackets the "
        "ratio to average pooling (gap) in the same rounds; gap is timed twice to show the spread."
    ]
    if results["targets"]:
        parts += ["### Targets", targets_table(results["targets"])]
    titles = {"layer": "1×1 map and pooling", "alone": "pooling alone"}
    for section, title in titles.items():
        for dtype in in_order(row["dtype"] for row in rows if row["section"] == section):
            chosen = [r for r in rows if r["section"] == section and r["dtype"] == dtype]
            for what, cell in cells(chosen):
                heading = f"### Forward and backward, {title}, {dtype}: {what}"
                parts += [heading, pivot(chosen, "size", size_text, cell)]
    chosen = [r for r in rows if r["section"] == "resnet"]
    for what, cell in cells(chosen):
        heading = f"### {chosen[0]['model']} training step, {chosen[0]['dtype']}: {what}"
        parts += [heading, pivot(chosen, "head", lambda _: "step", cell)]
    for axis in "knmd":
        chosen = [r for r in rows if r["section"] == "growth" and r["axis"] == axis]
        for what, cell in cells(chosen):
            heading = f"### Pooling alone against {axis}: {what}"
            parts += [heading, pivot(chosen, axis, lambda r: str(r["at"] or "any"), cell)]
    failed = [f"- {place(r)}: {r['error'] or r['graph_error']}" for r in rows if failed_in(r)]
    if failed:
        parts += ["### Not measured", "\n".join(failed)]
    return "\n\n".join(parts) + "\n"


def cells(rows: list[Row]) -> Iterator[tuple[str, Callable[[Row], str]]]:
    """Yield the quantities in ``rows``, each with a function that formats a cell."""
    if any(r["eager"] for r in rows):
        yield "step time, eager, ms", lambda r: time_text(r, "eager")
    if any(r["graph"] for r in rows):
        yield "step time, CUDA graph replay, ms", lambda r: time_text(r, "graph")
    if any(r["peak_bytes"] for r in rows):
        yield "peak memory above inputs and parameters, MiB", lambda r: memory_text(r, "peak_bytes")
    elif any(r["saved_bytes"] for r in rows):
        yield "saved for the backward pass, MiB", lambda r: memory_text(r, "saved_bytes")


def pivot(
    rows: list[Row], corner: str, column: Callable[[Row], str], cell: Callable[[Row], str]
) -> str:
    """Format a table with one line per variant; iterative-k at several k share a line."""
    spread = corner == "k"
    table: dict[str, dict[str, str]] = {}
    for row in rows:
        line = row["variant"].partition("-")[0] if spread and row["k"] else row["variant"]
        table.setdefault(line, {})[column(row)] = cell(row)
    columns = in_order(column(row) for row in rows)
    lines = [[corner, *columns], ["---"] + ["---:"] * len(columns)]
    lines += [[name, *(by.get(c, "") for c in columns)] for name, by in table.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def targets_table(targets: list[dict[str, Any]]) -> str:
    """Format targets and measurements as a table."""
    lines = ["| target | asked | measured | met |", "|---|---:|---:|---|"]
    for t in targets:
        met = "yes" if t["met"] else "no"
        lines.append(f"| {t['what']} | {t['sense']} {t['limit']:g} | {t['value']:.3g} | {met} |")
    return "\n".join(lines)


def check_target(
    found: list[dict[str, Any]], what: str, value: float | None, sense: str, limit: float
) -> None:
    """Add a target to ``found``, with what was measured, unless that is None."""
    if value is not None:
        met = value <= limit if sense == "≤" else value >= limit
        found.append({"what": what, "value": value, "sense": sense, "limit": limit, "met": met})


def targets(rows: list[Row], device: str) -> list[dict[str, Any]]:
    """Compare ``rows`` with the targets that apply to them."""
    found: list[dict[str, Any]] = []
    hold = partial(check_target, found)
    seen: set[str] = set()
    for (section, dtype, size), by in groups(rows).items():
        where = f"{size}, {dtype}"
        if device == "cpu" and section in seen:
            continue  # on the CPU, only the first size has targets
        seen.add(section)
        if device == "cpu" and section == "layer":
            hold(f"map + exact over map + gap ({where})", ratio(by, "exact", "eager"), "≤", 1.5)
        elif device == "cpu" and section == "alone":
            value = quotient(by, "autodiff-100", "exact", "eager")
            hold(f"autodiff-100 over exact, pooling alone ({where})", value, "≥", 8)
            value = quotient(by, "printed-100", "exact", "eager")
            hold(f"printed-100 over exact, pooling alone ({where})", value, "≥", 8)
        elif section == "layer":
            value = ratio(by, "fused", "graph")
            hold(f"map + fused over map + gap, graph ({where})", value, "≤", 2)
            for name in ("keys", "keys-compiled", "keys-fused"):
                value = ratio(by, name, "graph")
                hold(f"{name} + map over map + gap, graph ({where})", value, "≤", 2)
            for name in ("iterative-100", "linear-100"):
                value = quotient(by, name, "fused", "eager")
                hold(f"{name} over fused with the map, eager ({where})", value, "≥", 20)
        elif section == "alone":
            for name in ("iterative-100", "linear-100"):
                value = quotient(by, name, "fused", "eager")
                hold(f"{name} over fused, pooling alone, eager ({where})", value, "≥", 20)
        elif section == "resnet" and device == "cuda":
            hold(
                f"step with fused over gap, eager ({dtype})", ratio(by, "fused", "eager"), "≤", 1.03
            )
            hold(
                f"step with fused over gap, graph ({dtype})", ratio(by, "fused", "graph"), "≤", 1.03
            )
            for name in ("keys", "keys-fused"):
                value = ratio(by, name, "graph")
                hold(f"step with {name} over gap, graph ({dtype})", value, "≤", 1.03)
    against_k = [r for r in rows if r["section"] == "growth" and r["axis"] == "k" and r["k"]]
    memory = [memory_of(r) for r in against_k if r["variant"].startswith("iterative")]
    known = [value for value in memory if value]
    if known:
        value = max(known) / min(known)
        hold("memory over all k, largest over smallest, closed form", value, "≤", 1.01)
    return found


def groups(rows: list[Row]) -> dict[tuple[str, str, str], dict[str, Row]]:
    """Group the rows by section, dtype and size, then by variant; growth is left out."""
    out: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        if row["section"] != "growth":
            key = (row["section"], row["dtype"], size_text(row))
            out.setdefault(key, {})[row["variant"]] = row
    return out


def ratio(by: dict[str, Row], name: str, mode: str) -> float | None:
    """Ratio of a variant to average pooling, or None."""
    measured = by.get(name, {}).get(mode)
    return measured["ratio_to_gap"] if measured else None


def quotient(by: dict[str, Row], over: str, under: str, mode: str) -> float | None:
    """Ratio of two variants, or None."""
    a, b = by.get(over, {}).get(mode), by.get(under, {}).get(mode)
    return a["median_ms"] / b["median_ms"] if a and b else None


def time_text(row: Row, mode: str) -> str:
    measured = row[mode]
    if not measured:
        return "–"
    text = number(measured["median_ms"])
    return text if measured["ratio_to_gap"] is None else f"{text} ({measured['ratio_to_gap']:.2f}×)"


def memory_text(row: Row, what: str) -> str:
    return "–" if row[what] is None else number(row[what] / MIB)


def memory_of(row: Row) -> int | None:
    """Peak memory if it was measured, else memory saved for the backward pass."""
    value: int | None = row["peak_bytes"] or row["saved_bytes"]
    return value


def number(x: float) -> str:
    """Format three digits or more."""
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def size_text(row: Row) -> str:
    s = row["size"]
    return f"B {s['B']}, C {s['C']}, {s['h']}×{s['w']}, d {s['d']}, m {s['m']}"


def failed_in(row: Row) -> bool:
    return bool(row["error"] or row["graph_error"])


def place(row: Row) -> str:
    return f"{row['section']}, {row['dtype']}, {size_text(row)}, {row['variant']}"


def in_order(items: Iterable[str]) -> list[str]:
    """Unique items in order of first appearance."""
    return list(dict.fromkeys(items))
