"""Figure of the token study: tokens, embeddings and class hulls under each pooling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon

from sumpool.report.plots import legend_below
from sumpool.studies.shared.hulls import unpack_hulls
from sumpool.system.files import StoreError
from sumpool.system.rows import Row, read_arrays

#: Colors that color-blind readers can tell apart; further classes repeat them with dashed outlines.
COLORS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#999999", "#7A5195")
SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
NAMES = {"GAP": "average pooling (GAP)", "GSP": "sum pooling (GSP)"}


def draw(folder: Path, rows: Sequence[Row], *methods: str) -> Figure:
    """Draw tokens, test embeddings and class hulls: one row per margin, one column per method.

    Shows the first seed, whose arrays are in ``folder``.
    """
    seed = min(row.cell["seed"] for row in rows)
    margins = sorted({margin_of(row) for row in rows})
    figure = Figure(figsize=(4.4 * len(methods), 4.7 * len(margins) + 0.5))
    figure.set_layout_engine("constrained", h_pad=0.12)
    grid = figure.subplots(len(margins), len(methods), squeeze=False)
    for line, margin in zip(grid, margins, strict=True):
        cells = [row for row in rows if margin_of(row) == margin]
        for axes, method in zip(line, methods, strict=True):
            _panel(axes, folder, _row_of(cells, method, seed))
    legend_below(figure, _legend(), 2)
    return figure


def margin_of(row: Row) -> float:
    """Return the margin m⁻ a row was trained with: its own, or that shared by all cells."""
    return float(row.cell.get("margin", row.settings.get("negative_margin")))


def _row_of(rows: Sequence[Row], method: str, seed: int) -> Row:
    for row in rows:
        if row.cell["method"] == method and row.cell["seed"] == seed:
            return row
    raise StoreError(
        f"there is no row of {method} with seed {seed}: run the study to its end first"
    )


def _panel(axes: Axes, folder: Path, row: Row) -> None:
    arrays = read_arrays(folder, row)
    classes, own = int(row.settings["classes"]), int(row.settings["own"])
    bound = float(row.settings["bound"])
    hulls, token_hulls = unpack_hulls(arrays, "hull"), unpack_hulls(arrays, "token_hull")
    for label in range(classes):
        color = COLORS[label % len(COLORS)]
        style = "-" if label < len(COLORS) else (0, (3, 1.5))
        samples = arrays["embeddings"][arrays["labels"] == label]
        tokens = arrays["tokens"][label * own : (label + 1) * own]
        axes.add_patch(Polygon(token_hulls[label], color=color, alpha=0.2, lw=0.8, zorder=0.5))
        axes.add_patch(Polygon(hulls[label], fill=False, edgecolor=color, linestyle=style, lw=1.3))
        axes.plot(*samples.T, ".", color=color, markersize=1.5, alpha=0.7)
        axes.plot(*tokens.T, "o", color=color, markersize=5.5, mec="black", mew=0.6)
    axes.plot(*arrays["prototypes"].T, "D", mfc="none", mec="black", markersize=7, mew=0.9)
    axes.plot(*arrays["tokens"][classes * own :].T, "X", color="black", mec="white", markersize=9)
    axes.add_patch(Polygon(bound * SQUARE, fill=False, edgecolor="0.6", linestyle=":", lw=1))
    reach = 1.18 * bound
    outside = int((np.abs(arrays["prototypes"]) > reach).any(1).sum())
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    note = f"\n({outside} of {len(arrays['prototypes'])} prototypes lie outside)" if outside else ""
    axes.set_xlabel("coordinate 1" + note)
    axes.set_ylabel("coordinate 2")
    axes.tick_params(labelsize=8)
    axes.set_title(
        f"{NAMES[row.cell['method']]}, m⁻ = {margin_of(row):g}\n"
        f"MAP@R {row.metrics['map_at_r']:.3f}, "
        f"token hulls meet in {row.metrics['meeting_pairs']:.0%} of class pairs",
        fontsize=10,
    )


def _legend() -> list[Artist]:
    def mark(marker: str, size: float, face: str, edge: str, label: str) -> Line2D:
        return Line2D(
            [], [], ls="", marker=marker, markersize=size, mfc=face, mec=edge, label=label
        )

    return [
        mark("o", 5.5, "0.7", "black", "class token; color and line style = class"),
        mark("X", 9, "black", "white", "background token, shared by all"),
        mark("D", 7, "none", "black", "prototype (GSP)"),
        Line2D(
            [], [], color="0.4", lw=1.3, marker=".", markersize=4, label="samples and their hull"
        ),
        Patch(color="0.4", alpha=0.3, label="hull of a class's active tokens"),
    ]
