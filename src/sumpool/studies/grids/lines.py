"""A figure of lines: MAP@R against an option, one line a group, a band for the deviation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.section import grouped, values
from sumpool.report.style import COLORS, MARKERS, STYLES, mean_and_deviation, style_axes
from sumpool.system.rows import Row


def draw_lines(
    rows: Sequence[Row],
    option: str,
    label: str,
    groups: Mapping[str, Callable[[Row], bool]],
    out: str | Path | BinaryIO,
    *,
    doubling: bool = False,
) -> None:
    """Draw test MAP@R against an option of the cells.

    Args:
        rows: The rows.
        option: The option, a number of each cell.
        label: What it is called.
        groups: Names of the lines, and which rows belong to each.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
        doubling: Whether the option doubles from level to level.
    """
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "", xlabel=label, ylabel="test MAP@R [%]")
    for place, (name, belongs) in enumerate(groups.items()):
        levels = grouped([row for row in rows if belongs(row)], lambda row: float(row.cell[option]))
        points = [
            (level, *mean_and_deviation(found))
            for level, own in sorted(levels.items())
            if (found := values(own, "map_at_r"))
        ]
        if not points:
            continue
        level, mean, deviation = np.array(points).T
        color = COLORS[place % len(COLORS)]
        axes.fill_between(level, mean - deviation, mean + deviation, color=color, alpha=0.18, lw=0)
        axes.plot(
            level,
            mean,
            STYLES[place % len(STYLES)],
            color=color,
            marker=MARKERS[place % len(MARKERS)],
            markersize=5,
            label=name,
        )
    if doubling:
        axes.set_xscale("log", base=2)
    ticks = sorted({float(row.cell[option]) for row in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8.5, frameon=False)
    figure.savefig(out, dpi=140)
