"""Plots, tables and captions shared by the grid studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label, evaluated_on
from sumpool.report.plots import color_at, marker_at
from sumpool.report.section import grouped, seeds_label, values
from sumpool.report.style import STYLES, mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.studies.shared.reporting import cross_table
from sumpool.system.rows import Row


def draw_line(
    axes: Axes, rows: Sequence[Row], option: str, metric: str, place: int, label: str, style: str
) -> None:
    """Draw the mean of a metric in % against an option of the cells, with a deviation band."""
    points = [
        (level, *mean_and_deviation(found))
        for level, own in sorted(grouped(rows, lambda row: float(row.cell[option])).items())
        if (found := values(own, metric))
    ]
    if not points:
        return
    level, mean, deviation = np.array(points).T
    color = color_at(place)
    axes.fill_between(level, mean - deviation, mean + deviation, color=color, alpha=0.18, lw=0)
    marker = marker_at(place)
    axes.plot(level, mean, style, color=color, marker=marker, markersize=5, label=label)


def draw_lines(
    groups: Mapping[str, Sequence[Row]],
    option: str,
    label: str,
    *,
    doubling: bool = False,
    metric: str = "map_at_r",
    heading: str = "MAP@R",
) -> Figure:
    """Draw a metric, MAP@R by default, against an option, one line per group."""
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axes = figure.subplots()
    images = evaluated_on(next(iter(groups.values()))[0].settings)
    style_axes(axes, "", xlabel=label, ylabel=f"{images} {heading} [%]")
    for place, (name, own) in enumerate(groups.items()):
        draw_line(axes, own, option, metric, place, name, STYLES[place % len(STYLES)])
    if doubling:
        axes.set_xscale("log", base=2)
    ticks = sorted({float(row.cell[option]) for own in groups.values() for row in own})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8.5, frameon=False)
    return figure


def images_of(rows: Sequence[Row]) -> str:
    """Return the start of a caption, which names the images that were scored."""
    settings = rows[0].settings
    return f"{evaluated_on(settings).capitalize()} images of {dataset_label(settings)}"


def scores_caption(what: str, rows: Sequence[Row]) -> str:
    """Return the caption of a table of scores, which explains the weight if it was measured."""
    weight = (
        "weight: the share on the foreground tile, " if values(rows, "foreground_weight") else ""
    )
    return f"{what}, {weight}all in %, {seeds_label(rows)}"


def metric_table(
    groups: Mapping[str, Sequence[Row]],
    option: str,
    label: str,
    metric: str = "map_at_r",
    heading: str = "MAP@R",
) -> Table:
    """Tabulate a metric by an option of the cells (rows) and group (columns)."""
    rows = [row for own in groups.values() for row in own]
    levels = sorted({float(row.cell[option]) for row in rows})
    cells = {
        (level, name): [row for row in own if row.cell[option] == level]
        for level, (name, own) in product(levels, groups.items())
    }
    return cross_table(
        [label],
        {(f"{level:g}",): level for level in levels},
        {name: (name, metric) for name in groups},
        cells,
        f"{evaluated_on(rows[0].settings).capitalize()} {heading} [%] on "
        f"{dataset_label(rows[0].settings)}, {seeds_label(rows)}",
    )
