"""Figure of the pooling benchmark: step time and memory against the number of iterations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sumpool.studies.cost.figures import Measured, draw_against_k


def draw(results: str | Path, out: str | Path) -> None:
    """Draw step time and memory against k from the stored results of the pooling benchmark.

    Solvers that do not iterate are horizontal lines. Memory is the peak device memory if it was
    measured, else the memory saved for the backward pass; the axis says which.

    Args:
        results: A ``results.json`` written by ``benchmarks/pooling.py``.
        out: The image to write; its suffix selects the format.

    Raises:
        ValueError: If the results contain no measurement against k.
    """
    stored: dict[str, Any] = json.loads(Path(results).read_text(encoding="utf-8"))
    rows = [
        row
        for row in stored["rows"]
        if row["section"] == "growth" and row["axis"] == "k" and row["eager"]
    ]
    if not any(row["k"] for row in rows):
        raise ValueError(f"{results} holds no measurement against k: run the section growth")
    peak = any(row["peak_bytes"] for row in rows)
    size = rows[0]["size"]
    figure = draw_against_k(
        [_measured(row, "peak_bytes" if peak else "saved_bytes") for row in rows],
        peak=peak,
        title=f"{stored['machine']['device_name']}: {size['B']} images, {size['h']}×{size['w']} "
        f"features of {size['d']}, {size['m']} prototypes, {rows[0]['dtype']}",
    )
    figure.savefig(out, dpi=150)


def _measured(row: dict[str, Any], memory: str) -> Measured:
    variant: str = row["variant"]
    return Measured(
        variant.partition("-")[0] if row["k"] else variant,
        row["k"] or None,
        row["eager"]["median_ms"],
        None if row[memory] is None else row[memory] / 2**20,
        row["graph"]["median_ms"] if row["graph"] else None,
    )
