"""Validation of trainings step by step, by variant: a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sumpool.report.labels import loss_name, losses
from sumpool.report.style import BLUE, GREEN, GREY, MARKERS, ORANGE, style_axes
from sumpool.system.rows import Row, read_arrays

#: A row, and step and MAP@R of each validation of its training, (n, 2).
Curve = tuple[Row, NDArray[np.float64]]

_COLORS = (GREY, ORANGE, BLUE, GREEN)


def validations(folder: Path, rows: Sequence[Row], variants: Sequence[str]) -> list[Curve]:
    """The validations of up to four variants, in their order, as far as they are stored."""
    return [
        (row, found)
        for variant in variants
        for row in rows
        if row.cell["variant"] == variant and row.arrays is not None
        if (found := read_arrays(folder, row).get("validations")) is not None
    ]


def draw_curves(
    curves: Sequence[Curve], names: Mapping[str, str], out: str | Path | BinaryIO
) -> None:
    """Draw MAP@R on the validation classes by step, one panel a loss.

    Args:
        curves: What :func:`validations` gives.
        names: What the variants are called.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    panels = losses([row for row, _ in curves])
    variants = list(dict.fromkeys(str(row.cell["variant"]) for row, _ in curves))
    figure = Figure(figsize=(4.4 * len(panels) + 0.4, 3.6), layout="constrained")
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, loss in zip(grid, panels, strict=True):
        style_axes(axes, f"loss {loss}", xlabel="step")
        for row, found in curves:
            if loss_name(row) == loss:
                _curve(axes, variants.index(str(row.cell["variant"])), found)
    grid[0].set_ylabel("validation MAP@R [%]", fontsize=9)
    # Trainings soon leave their beginning behind.
    grid[0].set_ylim(bottom=100 * min(float(np.quantile(it[:, 1], 0.1)) for _, it in curves) - 1)
    figure.legend(
        [Line2D([], [], color=_COLORS[it], marker=MARKERS[it]) for it in range(len(variants))],
        [names[variant] for variant in variants],
        loc="outside lower center",
        ncols=len(variants),
        fontsize=8.5,
        frameon=False,
    )
    figure.savefig(out, dpi=140)


def _curve(axes: Axes, place: int, found: NDArray[np.float64]) -> None:
    color = _COLORS[place]
    steps, scores = found[:, 0], 100 * found[:, 1]
    axes.plot(steps, scores, color=color, lw=1.1, alpha=0.9)
    best = int(scores.argmax())
    axes.plot(steps[best], scores[best], MARKERS[place], color=color, markersize=6, mec="white")
