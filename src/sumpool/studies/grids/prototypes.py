"""Number m of prototypes × inverse smoothing ε [gsp, fig. 8].

    sumpool study prototypes              (glyphs: 62 minutes on two cores)
    sumpool study prototypes --data DIR   (CIFAR-100, 120 runs, or CUB: for a GPU)

CUB follows the tuning protocol: the first of five folds is held out and scored, λ = 0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label, loss_name, losses
from sumpool.report.plots import panel_row
from sumpool.report.section import NOTHING, Section, grouped, seeds_label, values
from sumpool.report.style import mean_and_deviation
from sumpool.report.tables import Table
from sumpool.studies.grids.levels import gsp_study
from sumpool.studies.grids.plots import images_of
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.reporting import cross_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row
from sumpool.training import TrainConfig

LEVELS = tuple(
    {"prototypes": count, "eps": eps}
    for count in (16, 64, 128, 256)
    for eps in (0.5, 5.0, 10.0, 20.0, 50.0)
)


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set m and ε."""
    gsp = replace(config.gsp, prototypes=cell["prototypes"], eps=cell["eps"])
    return replace(config, gsp=gsp)


run = gsp_study("prototypes", LEVELS, change, [LEVELS[number] for number in (0, 2, 5, 7)])


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate MAP@R by prototypes (rows) and inverse smoothing (columns), one table per loss."""
    counts, smooth = _axes(rows)
    return [
        cross_table(
            ["prototypes m"],
            {(str(count),): count for count in counts},
            {f"ε = {eps:g}": (eps, "map_at_r") for eps in smooth},
            grouped([row for row in rows if loss_name(row) == loss], _cell),
            f"{images_of(rows)}, loss {loss}, MAP@R [%], {seeds_label(rows)}",
        )
        for loss in losses(rows)
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and heat maps."""
    alt = "MAP@R for every number of prototypes and every ε as a heat map, for each loss."
    return study_section(
        rows,
        title="How many prototypes, how sharp",
        question=(
            "m prototypes say what is worth pooling, and the inverse smoothing ε how sharply it is "
            "selected. How much depends on them on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={alt: draw(rows)},
        notes=["All heat maps share one scale."],
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Draw MAP@R over m × ε as annotated heat maps, one per loss."""
    counts, smooth = _axes(rows)
    means = {
        key: mean_and_deviation(found)
        for key, own in grouped(rows, lambda row: (loss_name(row), *_cell(row))).items()
        if (found := values(own, "map_at_r"))
    }
    low, high = min(mean for mean, _ in means.values()), max(mean for mean, _ in means.values())
    names = losses(rows)
    width = (0.82 * len(smooth) + 0.6) * len(names) + 1.6
    figure, panels = panel_row(names, width, 0.52 * len(counts) + 1.5, sharey=True)
    for loss, axes in panels.items():
        field = np.full((len(counts), len(smooth)), np.nan)
        for line, column in np.ndindex(field.shape):
            key = (loss, counts[line], smooth[column])
            mean, deviation = means.get(key, (np.nan, 0.0))
            field[line, column] = mean
            words = NOTHING if np.isnan(mean) else f"{mean:.1f}"
            words += f"\n± {deviation:.1f}" if deviation else ""
            color = "black" if np.isnan(mean) or mean > (low + high) / 2 else "white"
            axes.text(column, line, words, ha="center", va="center", fontsize=8.5, color=color)
        image = axes.imshow(field, cmap="viridis", vmin=low, vmax=high or 1.0, aspect="auto")
        axes.set_title(f"loss {loss}", fontsize=10.5)
        axes.set_xticks(range(len(smooth)), [f"{eps:g}" for eps in smooth])
        axes.set_yticks(range(len(counts)), [str(count) for count in counts])
        axes.set_xlabel("inverse smoothing ε", fontsize=9)
        axes.tick_params(labelsize=9, length=0)
        axes.spines[:].set_visible(False)
    panels[names[0]].set_ylabel("prototypes m", fontsize=9)
    bar = figure.colorbar(image, ax=list(panels.values()))
    bar.set_label("MAP@R [%]", size=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def _cell(row: Row) -> tuple[int, float]:
    return int(row.cell["prototypes"]), float(row.cell["eps"])


def _axes(rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    cells = [_cell(row) for row in rows]
    return sorted({count for count, _ in cells}), sorted({eps for _, eps in cells})
