"""Report section on the geometry of unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label
from sumpool.report.plots import marker_at, panel_row
from sumpool.report.section import Section, seeds_label
from sumpool.report.style import CLASS_COLORS
from sumpool.report.tables import Table
from sumpool.studies.shared.ccp_labels import METHODS, PROBLEMS, by_method, note, shown_rows
from sumpool.studies.shared.reporting import Column, seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row, read_arrays

_COLUMNS: dict[str, Column] = {
    "validation_map_at_r": ("validation MAP@R [%]", 1, 100.0),
    "mean_covering_radius": ("mean covering radius", 3, 1.0),
    "class_distance": ("distance of classes", 3, 1.0),
    "relative_radius": ("radius / distance", 3, 1.0),
    "map_at_r": ("test MAP@R [%]", 1, 100.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate MAP@R, covering radius, class distance and problem statistics by method."""
    groups = by_method(rows)
    words = f"{dataset_label(rows[0].settings)}, {seeds_label(rows)}"
    return [
        seeds_table("training", groups, _COLUMNS, f"Validation images of {words}"),
        seeds_table("training", groups, PROBLEMS, f"The problems on training images of {words}"),
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and, for the first seed, the validation images on a plane."""
    shown = shown_rows(rows)
    alt = (
        "Validation images on a plane by t-SNE after one problem and after alternating problems, "
        "classes by color and mark."
    )
    return study_section(
        rows,
        title="Chance-constrained proxies: the geometry of unseen classes",
        question=(
            "Proxies that are drawn again are meant to cover the training images better. Does it "
            f"show on classes that were not trained on, on {dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={alt: draw(folder, shown)} if shown else {},
        notes=[
            "Mean covering radius: the largest distance of an image of a class to the nearest of k "
            "greedy centers among them, averaged over k = 1..n and over classes. Distance of "
            "classes: mean distance between images of different classes. The ratio does not depend "
            "on scale.",
            note(rows),
            "t-SNE keeps neighborhoods, not distances: the figure is to look at, the table is the "
            "measure. It shows the first seed.",
        ],
    )


def draw(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw the validation images on a plane, one panel per row; arrays are in ``folder``."""
    names = [str(row.cell["method"]) for row in rows]
    figure, panels = panel_row(names, 5.0 * len(rows), 5.2)
    for row, (method, axes) in zip(rows, panels.items(), strict=True):
        arrays = read_arrays(folder, row)
        for place, label in enumerate(np.unique(arrays["labels"])):
            x, y = arrays["points"][arrays["labels"] == label].T
            # Colors repeat with different markers.
            marker = marker_at(place // len(CLASS_COLORS) + place)
            color = CLASS_COLORS[place % len(CLASS_COLORS)]
            axes.scatter(x, y, s=20, color=color, marker=marker, edgecolor="white", lw=0.3)
        metrics = row.metrics
        axes.set_title(
            f"{METHODS[method]}\n"
            f"MAP@R {100 * metrics['validation_map_at_r']:.1f} %, "
            f"radius {metrics['mean_covering_radius']:.3f}, "
            f"distance {metrics['class_distance']:.3f}",
            fontsize=10,
        )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("0.8")
    return figure
