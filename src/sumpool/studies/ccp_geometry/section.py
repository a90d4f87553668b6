"""The study of the geometry of unseen classes on a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.labels import conditions, dataset_label
from sumpool.report.section import (
    Section,
    grouped,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
)
from sumpool.report.style import CLASS_COLORS, MARKERS
from sumpool.report.tables import Table
from sumpool.studies.shared.ccp_labels import METHODS, methods_in, note, problem_columns
from sumpool.system.rows import Row, read_arrays

#: What is told of the geometry: heading, digits and factor.
_COLUMNS = {
    "validation_map_at_r": ("validation MAP@R [%]", 1, 100.0),
    "mean_covering_radius": ("mean covering radius", 3, 1.0),
    "class_distance": ("distance of classes", 3, 1.0),
    "relative_radius": ("radius / distance", 3, 1.0),
    "map_at_r": ("test MAP@R [%]", 1, 100.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """MAP@R, covering radius and distance of classes of each method, and its problems."""
    cells = grouped(rows, lambda row: str(row.cell["method"]))
    headings, told = problem_columns(rows)
    lines = [
        [
            METHODS[method],
            *(over_seeds(cells[method], name, *how[1:]) for name, how in _COLUMNS.items()),
        ]
        for method in methods_in(rows)
    ]
    header = ["training", *(heading for heading, _, _ in _COLUMNS.values())]
    words = f"{dataset_label(rows[0].settings)}, {seeds_in_words(rows)}"
    return [
        Table(header, lines, f"Validation images of {words}"),
        Table(
            ["training", *headings],
            [[METHODS[method], *told(cells[method])] for method in methods_in(rows)],
            f"The problems on training images of {words}",
        ),
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    shown = _shown(rows)
    pictures = []
    if shown:
        pictures = [
            render_png(
                partial(draw, folder, shown),
                "Validation images on a plane by t-SNE after one problem and after alternating "
                "problems, classes by colour and mark.",
            )
        ]
    return Section(
        title="Chance-constrained proxies: the geometry of unseen classes",
        question=(
            "Proxies that are drawn again are meant to cover the training images better. Does it "
            f"show on classes that were not trained on, on {dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=pictures,
        notes=[
            "Mean covering radius: the largest distance of an image of a class to the nearest of k "
            "greedy centres among them, averaged over k = 1..n and over classes. Distance of "
            "classes: mean distance between images of different classes. The ratio does not depend "
            "on scale.",
            note(rows),
            "t-SNE keeps neighbourhoods, not distances: the figure is to look at, the table is the "
            "measure. It shows the first seed.",
            *conditions(rows[0].settings),
        ],
        provenance=provenance(rows),
    )


def draw(folder: Path, rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw the validation images on a plane, one panel a method.

    Args:
        folder: Where the arrays are.
        rows: The rows to show, with arrays.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    figure = Figure(figsize=(5.0 * len(rows), 5.2), layout="constrained")
    grid = figure.subplots(1, len(rows), squeeze=False)[0]
    for axes, row in zip(grid, rows, strict=True):
        arrays = read_arrays(folder, row)
        for place, label in enumerate(np.unique(arrays["labels"])):
            own = arrays["points"][arrays["labels"] == label]
            # Colours come again with other marks.
            marker = MARKERS[(place // len(CLASS_COLORS) + place) % len(MARKERS)]
            color = CLASS_COLORS[place % len(CLASS_COLORS)]
            x, y = own.T
            axes.scatter(x, y, s=20, color=color, marker=marker, edgecolor="white", lw=0.3)
        metrics = row.metrics
        axes.set_title(
            f"{METHODS[row.cell['method']]}\n"
            f"MAP@R {100 * metrics['validation_map_at_r']:.1f} %, "
            f"radius {metrics['mean_covering_radius']:.3f}, "
            f"distance {metrics['class_distance']:.3f}",
            fontsize=10,
        )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("0.8")
    figure.savefig(out, dpi=140)


def _shown(rows: Sequence[Row]) -> list[Row]:
    """The first row with arrays of each method."""
    seen = sorted(
        (row for row in rows if row.arrays is not None), key=lambda row: int(row.cell["seed"])
    )
    found = grouped(seen, lambda row: str(row.cell["method"]))
    return [found[method][0] for method in methods_in(seen)]
