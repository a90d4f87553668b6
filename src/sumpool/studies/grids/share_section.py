"""The study of the share μ on a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.labels import conditions, dataset_label, loss_name, losses
from sumpool.report.section import (
    Section,
    grouped,
    measured,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
    values,
)
from sumpool.report.style import COLORS, MARKERS, mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.system.rows import Row

_SCORES = {"map_at_r": "MAP@R", "precision_at_1": "P@1", "foreground_weight": "weight"}


def tables(rows: list[Row]) -> list[Table]:
    """One line a share; scores and weight on the foreground for each loss."""
    cells = grouped(rows, lambda row: (loss_name(row), float(row.cell["mu"])))
    scores = measured(rows, _SCORES)
    header = [f"{loss} {label}" for loss in losses(rows) for label in scores.values()]
    lines = [
        [
            f"{mu:g}",
            *(
                over_seeds(cells.get((loss, mu), []), score, 1, 100)
                for loss in losses(rows)
                for score in scores
            ),
        ]
        for mu in sorted({mu for _, mu in cells})
    ]
    caption = (
        f"Test images of {dataset_label(rows[0].settings)}, "
        + ("weight: the share on the foreground tile, " if "foreground_weight" in scores else "")
        + f"all in %, {seeds_in_words(rows)}"
    )
    return [Table(["μ", *header], lines, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    return Section(
        title="How much to pool",
        question=(
            "The share μ says how much of the image is pooled. Too little leaves out what tells "
            "classes apart; μ = 1 is average pooling. How much depends on it on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(draw, rows),
                "MAP@R, and the pooling weight on the foreground, against the share μ; one line a "
                "loss, a band for the standard deviation over seeds.",
            )
        ],
        notes=conditions(rows[0].settings),
        provenance=provenance(rows),
    )


def draw(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw MAP@R and, where it was measured, the weight on the foreground against μ.

    Args:
        rows: Rows of the share study.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    panels = {"map_at_r": "MAP@R [%]"}
    if any("foreground_weight" in row.metrics for row in rows):
        panels["foreground_weight"] = "weight on the foreground tile [%]"
    figure = Figure(figsize=(4.2 * len(panels), 3.2), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (score, label) in zip(grid, panels.items(), strict=True):
        style_axes(axes, "", xlabel="share μ", ylabel=label)
        for place, loss in enumerate(losses(rows)):
            _line(axes, [row for row in rows if loss_name(row) == loss], score, place)
        if score == "foreground_weight":
            axes.axhline(25, color="0.45", lw=1, ls=":", label="equal weights")
        axes.set_xlim(left=0)
        axes.legend(fontsize=8.5, frameon=False)
    figure.savefig(out, dpi=140)


def _line(axes: Axes, rows: Sequence[Row], score: str, place: int) -> None:
    points = [
        (mu, *mean_and_deviation(found))
        for mu, own in sorted(grouped(rows, lambda row: float(row.cell["mu"])).items())
        if (found := values(own, score))
    ]
    if not points:
        return
    mu, mean, deviation = np.array(points).T
    color = COLORS[place % len(COLORS)]
    axes.fill_between(mu, mean - deviation, mean + deviation, color=color, alpha=0.18, lw=0)
    marker = MARKERS[place % len(MARKERS)]
    axes.plot(mu, mean, color=color, marker=marker, markersize=5, label=loss_name(rows[0]))
