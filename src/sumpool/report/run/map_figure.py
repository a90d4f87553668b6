"""The figure of the embedding in two dimensions, and its legend."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.html_page import Picture
from sumpool.report.plots import marker_at, picture
from sumpool.report.run.gallery import EmbeddingMap
from sumpool.report.style import CLASS_COLORS, plain_text

REST = "#B8B8B8"
#: The markers as characters of an HTML legend, whose fonts cover more alphabets than figures'.
SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}


def map_picture(chart: EmbeddingMap, source: str) -> Picture:
    """Draw one mark per query; the listed classes in color, the others in gray."""
    figure = Figure(figsize=(6.6, 5.0), layout="constrained")
    axes = figure.subplots()
    rest = ~np.isin(chart.labels, chart.colored)
    axes.scatter(chart.points[rest, 0], chart.points[rest, 1], s=12, color=REST, lw=0)
    for position, label in enumerate(chart.colored):
        own = chart.labels == label
        axes.scatter(
            chart.points[own, 0],
            chart.points[own, 1],
            s=34,
            color=_color(position),
            marker=marker_at(position),
            edgecolor="white",
            lw=0.3,
            zorder=3,
        )
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("0.8")
    title = f"{chart.method} of the embeddings of {len(chart.points):,} {source} images"
    axes.set_title(plain_text(title), fontsize=10.5)
    alt = f"{title}, {len(chart.colored)} classes in color."
    return picture(figure, alt)


def map_legend(chart: EmbeddingMap) -> list[tuple[str, str, str]]:
    """Return color, mark and name of each class in color, then of the others."""
    marks = [
        (_color(position), SIGNS[marker_at(position)], chart.class_names[label])
        for position, label in enumerate(chart.colored)
    ]
    more = len(np.unique(chart.labels)) - len(chart.colored)
    if more:
        marks.append((REST, "●", f"{more} more {'classes' if more > 1 else 'class'}"))
    return marks


def _color(position: int) -> str:
    return CLASS_COLORS[position % len(CLASS_COLORS)]
