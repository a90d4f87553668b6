"""The study of proxies and pool on a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sumpool.report.labels import conditions, dataset_label
from sumpool.report.section import Section, provenance, render_png
from sumpool.report.tables import Table
from sumpool.studies.grids.lines import draw_lines
from sumpool.studies.shared.ccp_labels import grid_table
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """MAP@R by pool (lines) and proxies (columns)."""
    caption = f"Test MAP@R [%] on {dataset_label(rows[0].settings)}"
    down = ("pool b", lambda row: float(row.cell["pool"]))
    return [grid_table(rows, down, _name, [_words(it) for it in _counts(rows)], caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    groups = {
        _words(it): partial(_has, it)  # a function of its own for each line
        for it in _counts(rows)
    }
    return Section(
        title="Chance-constrained proxies: how many, picked among how many",
        question=(
            "New proxies of a class are picked among b images, each as far as can be from those "
            "there are. A pool as large as the number of proxies is random drawing. How much "
            f"depends on both on {dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                lambda out: draw_lines(rows, "pool", "pool b", groups, out),
                "Test MAP@R against the size of the pool, one line a number of proxies, a band for "
                "the standard deviation over seeds.",
            )
        ],
        notes=conditions(rows[0].settings),
        provenance=provenance(rows),
    )


def _counts(rows: list[Row]) -> list[int]:
    return sorted({int(row.cell["proxies"]) for row in rows})


def _words(count: int) -> str:
    return "1 proxy" if count == 1 else f"{count} proxies"


def _name(row: Row) -> str:
    return _words(int(row.cell["proxies"]))


def _has(count: int, row: Row) -> bool:
    return int(row.cell["proxies"]) == count
