"""Helpers for figures: rendering, rows of panels, legends, colors and markers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.html_page import Picture
from sumpool.report.style import COLORS, MARKERS


def picture(figure: Figure, alt: str, *, dpi: int = 140, **options: Any) -> Picture:
    """Render a figure with the alternative text ``alt``; ``options`` are passed to ``savefig``."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, **options)
    return Picture(buffer.getvalue(), alt)


def panel_row(
    names: Sequence[str], width: float, height: float, **options: Any
) -> tuple[Figure, dict[str, Axes]]:
    """Create a figure, sized in inches, with one panel per name from left to right.

    Args:
        names: Distinct names of the panels.
        width: Width of the whole figure.
        height: Height of the figure.
        **options: Options of ``Figure.subplots``, such as ``sharey``.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(1, len(names), squeeze=False, **options)[0]
    return figure, dict(zip(names, grid, strict=True))


def legend_below(figure: Figure, handles: Sequence[Artist], most: int, **options: Any) -> None:
    """Add a frameless legend below all panels, with at most ``most`` columns, as space permits."""
    shared: dict[str, Any] = {"fontsize": 8.5, "frameon": False, **options}
    room = 72 * figure.get_figwidth() / shared["fontsize"]
    ncols = _columns([len(str(it.get_label())) for it in handles], most, room)
    figure.legend(handles=handles, loc="outside lower center", ncols=ncols, **shared)


def _columns(lengths: Sequence[int], most: int, room: float) -> int:
    """Number of columns of labels with these lengths that fit into ``room``, in font sizes.

    Example:
        >>> _columns([20, 5, 5, 20], 4, 40.0), _columns([20, 5, 5, 20], 4, 35.0)
        (3, 2)
    """
    for columns in range(most, 1, -1):
        # The way matplotlib splits them.
        widest = [it.max() for it in np.array_split(np.array(lengths), columns) if len(it)]
        # A letter is about half a font size wide; the handle and the gaps take 5 font sizes.
        if 0.55 * sum(widest) + 5 * len(widest) <= room:
            return columns
    return 1


def color_at(place: int) -> str:
    """The color of the item at ``place``; colors repeat."""
    return COLORS[place % len(COLORS)]


def marker_at(place: int) -> str:
    """The marker of the item at ``place``; markers repeat."""
    return MARKERS[place % len(MARKERS)]
