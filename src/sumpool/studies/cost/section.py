"""Report section on the cost of a pooling step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from sumpool.report.section import NOTHING, Section, grouped, over_seeds, values
from sumpool.report.tables import Table
from sumpool.studies.cost.figures import LOOKS, Measured, draw_against_k
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

_MEMORY = {"peak": "peak memory [MiB]", "saved": "saved for backward [MiB]"}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate one row per solver and k, exact solvers first, one table per size."""
    return [_table(own) for _, own in sorted(_sizes(rows).items())]


def _sizes(rows: list[Row]) -> dict[tuple[int, str], list[Row]]:
    def side(row: Row) -> tuple[int, str]:
        size = str(row.cell["size"])
        return int(size.partition("×")[0]), size

    return grouped(rows, side)


def _table(rows: list[Row]) -> Table:
    settings = rows[0].settings
    header = (
        "solver",
        "k",
        "step [ms]",
        "time over exact",
        _MEMORY[settings["memory"]],
        "weight misplaced [%]",
    )
    cells = grouped(rows, lambda row: (str(row.cell["solver"]), row.cell["k"]))
    order = ["exact", "fused", "iterative", "autodiff"]
    lines = [
        [
            LOOKS[solver].label,
            NOTHING if k is None else str(k),
            over_seeds(own, "step_ms", 2),
            over_seeds(own, "ratio_to_exact", 2),
            over_seeds(own, "memory_bytes", 2, 2**-20),
            f"{100 * fmean(values(own, 'weight_error')):.2g}",
        ]
        for (solver, k), own in sorted(
            cells.items(), key=lambda item: (order.index(item[0][0]), item[0][1] or 0)
        )
    ]
    return Table(header, lines, f"{_what(rows)}; medians of {settings['rounds']} rounds")


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables, and time, memory and error against the number of iterations."""
    del folder  # rows hold everything
    settings = rows[0].settings
    return study_section(
        rows,
        title="What pooling costs",
        question=(
            "The papers reach the weights by k iterations, and offer a closed-form gradient so "
            "that these need not be kept for the backward pass. The exact solver needs neither. "
            "What do a step and its memory cost, and how far off are the weights after k "
            "iterations?"
        ),
        tables=tables(rows),
        figures={
            f"Time of a step, its memory and the error of its weights against the number k of "
            f"iterations on maps of {size}: differentiated through, with the closed-form "
            "gradient, and the exact solver as a level line.": draw(own)
            for (_, size), own in sorted(_sizes(rows).items())
        },
        shared={},
        dpi=150,
        notes=[
            "A step is forward and backward of the pooling layer alone, on one batch. All "
            "contenders take turns within the same rounds, and the ratio to the exact solver is "
            "taken round by round, so that what slows a machine down meets all alike.",
            "Memory is the most that a step holds on the device above its inputs and parameters."
            if settings["memory"] == "peak"
            else "Memory is what the forward pass keeps for the backward one, inputs and "
            "parameters aside: a count, the same on every machine.",
            "Weight misplaced: half of the sum of |p − p*|, with p* the exact solution in float64, "
            "mean over the images. Every curve ends at the rounding of float32. Maps are random; "
            f"prototypes are picked from them. μ = {settings['mu']:g}, ε = {settings['eps']:g}.",
        ],
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Draw time, memory and error against k for the rows of one size, averaged over seeds."""
    cells = grouped(rows, lambda row: (str(row.cell["solver"]), row.cell["k"]))
    return draw_against_k(
        [
            Measured(
                solver,
                k,
                fmean(values(own, "step_ms")),
                fmean(values(own, "memory_bytes")) / 2**20,
                weight_error=fmean(values(own, "weight_error")),
            )
            for (solver, k), own in cells.items()
        ],
        peak=rows[0].settings["memory"] == "peak",
        title=_what(rows),
    )


def _what(rows: Sequence[Row]) -> str:
    settings = rows[0].settings
    return (
        f"{settings['device_name']}: {settings['batch']} images, {rows[0].cell['size']} features "
        f"of {settings['channels']}, {settings['prototypes']} prototypes, {settings['dtype']}"
    )
