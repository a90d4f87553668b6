"""Figures of the proxy settings study: scores, and validation by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sumpool.report.labels import in_given_order, loss_name, losses
from sumpool.report.plots import legend_below, marker_at, panel_row
from sumpool.report.section import grouped, values
from sumpool.report.style import BLUE, GREEN, GREY, ORANGE, hbar_with_error, style_axes
from sumpool.studies.ccp_settings.experiment import BASE, LABELS, VARIANTS
from sumpool.system.rows import Row, read_arrays

#: A row, and the step and MAP@R of each of its validations, (n, 2).
Curve = tuple[Row, NDArray[np.float64]]

_COLORS = (GREY, ORANGE, BLUE, GREEN)


def variants_in(rows: Sequence[Row]) -> list[str]:
    """Return the variants in ``rows``, in order."""
    return in_given_order((str(row.cell["variant"]) for row in rows), tuple(VARIANTS))


def draw_scores(rows: Sequence[Row]) -> Figure:
    """Draw test MAP@R as bars, one panel per loss, with the base loss as a dashed line."""
    variants, names = variants_in(rows), losses(rows)
    width, height = 3.7 * len(names) + 2.0, max(2.4, 0.32 * len(variants) + 1.0)
    figure, panels = panel_row(names, width, height, sharex=True, sharey=True)
    cells = grouped(rows, lambda row: (loss_name(row), str(row.cell["variant"])))
    for loss, axes in panels.items():
        style_axes(axes, f"loss {loss}", xlabel="test MAP@R [%]", grid="x")
        for line, variant in enumerate(variants):
            found = values(cells.get((loss, variant), []), "map_at_r")
            if not found:
                continue
            color = GREY if variant.startswith(BASE) else BLUE
            mean = hbar_with_error(axes, line, found, height=0.72, color=color)
            if variant == BASE:
                axes.axvline(mean, color="0.15", ls="--", lw=1.2)
    first = panels[names[0]]
    first.set_yticks(range(len(variants)), [LABELS.get(name, name) for name in variants])
    first.set_ylim(len(variants) - 0.4, -0.6)
    first.set_xlim(0, 1.12 * first.get_xlim()[1])  # room for the numbers
    return figure


def validations(folder: Path, rows: Sequence[Row], variants: Sequence[str]) -> list[Curve]:
    """Return the stored validations of up to four variants, in the given order."""
    return [
        (row, found)
        for variant in variants
        for row in rows
        if row.cell["variant"] == variant and row.arrays is not None
        if (found := read_arrays(folder, row).get("validations")) is not None
    ]


def draw_curves(curves: Sequence[Curve]) -> Figure:
    """Draw MAP@R on the validation classes by step, one panel per loss, a marker at the best."""
    names = losses([row for row, _ in curves])
    variants = list(dict.fromkeys(str(row.cell["variant"]) for row, _ in curves))
    figure, panels = panel_row(names, 4.4 * len(names) + 0.4, 3.6, sharex=True, sharey=True)
    for axes, loss in zip(panels.values(), names, strict=True):
        style_axes(axes, f"loss {loss}", xlabel="step")
    for row, found in curves:
        axes, place = panels[loss_name(row)], variants.index(str(row.cell["variant"]))
        steps, scores = found[:, 0], 100 * found[:, 1]
        axes.plot(steps, scores, color=_COLORS[place], lw=1.1, alpha=0.9)
        best, color = int(scores.argmax()), _COLORS[place]
        marker = marker_at(place)
        axes.plot(steps[best], scores[best], marker, color=color, markersize=6, mec="white")
    first = panels[names[0]]
    first.set_ylabel("validation MAP@R [%]", fontsize=9)
    # Cut off the low scores at the beginning of runs.
    first.set_ylim(bottom=100 * min(float(np.quantile(it[:, 1], 0.1)) for _, it in curves) - 1)
    handles = [
        Line2D([], [], color=_COLORS[it], marker=marker_at(it), label=LABELS.get(name, name))
        for it, name in enumerate(variants)
    ]
    legend_below(figure, handles, len(variants))
    return figure
