"""The grid of prototypes m and inverse smoothing ε on a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.labels import conditions, dataset_label, loss_name, losses
from sumpool.report.section import (
    NOTHING,
    Section,
    grouped,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
    values,
)
from sumpool.report.style import mean_and_deviation
from sumpool.report.tables import Table
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """For each loss MAP@R by prototypes (lines) and inverse smoothing (columns)."""
    counts, smooth, cells = _axes(rows)
    return [
        Table(
            ["prototypes m", *(f"ε = {eps:g}" for eps in smooth)],
            [
                [
                    str(m),
                    *(over_seeds(cells.get((loss, m, e), []), "map_at_r", 1, 100) for e in smooth),
                ]
                for m in counts
            ],
            f"MAP@R [%], loss {loss}, {dataset_label(rows[0].settings)}, {seeds_in_words(rows)}",
        )
        for loss in losses(rows)
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    return Section(
        title="How many prototypes, how sharp",
        question=(
            "m prototypes say what is worth pooling, and the inverse smoothing ε how sharply it is "
            "selected. How much depends on them on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(draw, rows),
                "MAP@R for every number of prototypes and every ε as a heat map, for each loss.",
            )
        ],
        notes=["All heat maps share one scale.", *conditions(rows[0].settings)],
        provenance=provenance(rows),
    )


def draw(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw MAP@R over m × ε, a heat map for each loss, the number in each cell.

    Args:
        rows: Rows of the study of prototypes.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    counts, smooth, cells = _axes(rows)
    means = {
        key: mean_and_deviation(found)
        for key, own in cells.items()
        if (found := values(own, "map_at_r"))
    }
    low, high = min(mean for mean, _ in means.values()), max(mean for mean, _ in means.values())
    panels = losses(rows)
    figure = Figure(
        figsize=((0.82 * len(smooth) + 0.6) * len(panels) + 1.6, 0.52 * len(counts) + 1.5),
        layout="constrained",
    )
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, loss in zip(grid, panels, strict=True):
        field = np.full((len(counts), len(smooth)), np.nan)
        for line, count in enumerate(counts):
            for column, eps in enumerate(smooth):
                mean, deviation = means.get((loss, count, eps), (np.nan, 0.0))
                field[line, column] = mean
                words = NOTHING if np.isnan(mean) else f"{mean:.1f}"
                words += f"\n± {deviation:.1f}" if deviation else ""
                bright = mean > (low + high) / 2
                axes.text(
                    column,
                    line,
                    words,
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="black" if bright or np.isnan(mean) else "white",
                )
        image = axes.imshow(field, cmap="viridis", vmin=low, vmax=high or 1.0, aspect="auto")
        axes.set_title(f"loss {loss}", fontsize=10.5)
        axes.set_xticks(range(len(smooth)), [f"{eps:g}" for eps in smooth])
        axes.set_yticks(range(len(counts)), [str(count) for count in counts])
        axes.set_xlabel("inverse smoothing ε", fontsize=9)
        axes.tick_params(labelsize=9, length=0)
        axes.spines[:].set_visible(False)
    grid[0].set_ylabel("prototypes m", fontsize=9)
    bar = figure.colorbar(image, ax=grid)
    bar.set_label("MAP@R [%]", size=9)
    bar.ax.tick_params(labelsize=8)
    figure.savefig(out, dpi=140)


def _axes(
    rows: Sequence[Row],
) -> tuple[list[int], list[float], dict[tuple[str, int, float], list[Row]]]:
    cells = grouped(
        rows,
        lambda row: (loss_name(row), int(row.cell["prototypes"]), float(row.cell["eps"])),
    )
    return sorted({key[1] for key in cells}), sorted({key[2] for key in cells}), cells
