"""The study of batch sizes with and without chance-constrained proxies on a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sumpool.report.labels import conditions, dataset_label
from sumpool.report.section import Section, provenance, render_png
from sumpool.report.tables import Table
from sumpool.studies.grids.lines import draw_lines
from sumpool.studies.shared.ccp_labels import METHODS, grid_table, methods_in
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """MAP@R by batch size (lines) and method (columns)."""
    caption = f"Test MAP@R [%] on {dataset_label(rows[0].settings)}"
    down = ("batch size", lambda row: float(row.cell["batch_size"]))
    columns = [METHODS[method] for method in methods_in(rows)]
    return [grid_table(rows, down, lambda row: METHODS[row.cell["method"]], columns, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    groups = {METHODS[method]: partial(_has, method) for method in methods_in(rows)}
    shared = {name: it for name, it in rows[0].settings.items() if name != "batch_size"}
    return Section(
        title="Chance-constrained proxies: batch size",
        question=(
            "A loss inside batches sees the pairs of a batch alone. Proxies stand for images "
            "outside of it. Do small batches do with them on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                lambda out: draw_lines(
                    rows, "batch_size", "batch size", groups, out, doubling=True
                ),
                "Test MAP@R against the batch size, one line a method, a band for the standard "
                "deviation over seeds.",
            )
        ],
        notes=conditions(shared),
        provenance=provenance(rows),
    )


def _has(method: str, row: Row) -> bool:
    return bool(row.cell["method"] == method)
