"""Figures of proxies in the plane: embeddings with proxies, and curves over problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sumpool.report.plots import legend_below, marker_at
from sumpool.report.section import grouped
from sumpool.report.style import CLASS_COLORS, COLORS, plain_text, style_axes
from sumpool.studies.shared.ccp_labels import METHODS
from sumpool.system.rows import Row, read_arrays

#: Panels per row.
_ACROSS = 3


def problem_values(row: Row, name: str) -> list[float]:
    """Return a metric at the end of each problem of a run, in order."""
    count = int(row.metrics.get("problems", 0))
    return [float(row.metrics[f"{name}_{number}"]) for number in range(1, count + 1)]


def draw_planes(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw images and proxies in the plane, one panel per problem; arrays are in ``folder``."""
    stored = [read_arrays(folder, row) for row in rows]
    panels = [
        (row, arrays, place)
        for row, arrays in zip(rows, stored, strict=True)
        for place in range(len(arrays["shown"]))
    ]
    lines = -(-len(panels) // _ACROSS)
    across = min(_ACROSS, len(panels))
    figure = Figure(figsize=(3.9 * across, 4.2 * lines + 0.5))
    figure.set_layout_engine("constrained", h_pad=0.08)
    grid = figure.subplots(lines, across, squeeze=False).flatten()
    for axes, (row, arrays, place) in zip(grid, panels, strict=False):
        _plane(axes, arrays, place)
        number = int(arrays["shown"][place])
        alone = row.cell["method"] == "one problem"
        axes.set_title(
            f"{METHODS[row.cell['method']] if alone else f'alternating, problem {number}'}\n"
            f"covering radius {row.metrics[f'covering_radius_{number}']:.3f}, "
            f"spread {row.metrics[f'spread_{number}']:.3f}",
            fontsize=10,
        )
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    names = [str(name) for name in stored[0]["class_names"]]
    handles = [
        Line2D([], [], ls="", marker="o", color=_color(it), label=plain_text(name))
        for it, name in enumerate(names)
    ]
    handles += [
        Line2D([], [], ls="", marker="s", mfc="none", mec="black", label="converged proxy"),
        Line2D([], [], ls="", marker="o", mfc="none", mec="black", ms=8, label="next proxy"),
    ]
    legend_below(figure, handles, 6)
    return figure


def _plane(axes: Axes, arrays: dict[str, NDArray[Any]], place: int) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color="0.8", lw=0.8, zorder=0)
    embeddings, labels = arrays["embeddings"][place], arrays["labels"]
    for number, label in enumerate(np.unique(labels)):
        own, color = embeddings[labels == label], _color(int(label))
        axes.scatter(own[:, 0], own[:, 1], s=9, color=color, alpha=0.5, lw=0, zorder=1)
        for name, marker, size, edge in (("next", "o", 52, 1.0), ("converged", "s", 34, 1.3)):
            x, y = arrays[name][place][number].T  # each (P,)
            axes.scatter(
                x,
                y,
                s=size,
                marker=marker,
                facecolor=color,
                edgecolor="black",
                lw=edge,
                alpha=0.9,
                zorder=3 if name == "converged" else 2,
            )
        # Label classes: colors alone do not distinguish them.
        axes.annotate(
            plain_text(str(arrays["class_names"][label])),
            tuple(own.mean(0)),
            xytext=(0, 13),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            color=color,
            path_effects=[withStroke(linewidth=2.2, foreground="white")],
            zorder=4,
        )
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)


def draw_problems(rows: Sequence[Row]) -> Figure:
    """Draw covering radius and spread by problem, one line per seed."""
    cells = grouped(rows, lambda row: str(row.cell["method"]))
    panels = {
        "covering_radius": "covering radius",
        "relative_radius": "covering radius / distance of classes",
        "spread": "spread of a class's proxies",
    }
    figure = Figure(figsize=(12.6, 3.5), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        style_axes(axes, "", xlabel="problem", ylabel=label)
        for place, row in enumerate(cells.get("alternating", [])):
            found = problem_values(row, name)
            axes.plot(
                range(1, len(found) + 1),
                found,
                color=COLORS[0],
                marker=marker_at(place),
                markersize=4,
                lw=1.2,
                alpha=0.75,
                label="alternating, one line per seed" if place == 0 else None,
            )
        for place, row in enumerate(cells.get("one problem", [])):
            axes.axhline(
                problem_values(row, name)[0],
                color=COLORS[1],
                ls="--",
                lw=1.2,
                label="one problem alone, at its end" if place == 0 else None,
            )
        axes.set_ylim(bottom=0)
        axes.set_ylim(top=1.2 * axes.get_ylim()[1])
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.legend(fontsize=8.5, frameon=False, loc="upper right")
    return figure


def _color(label: int) -> str:
    return CLASS_COLORS[label % len(CLASS_COLORS)]
