"""Figures of the study of average pooling: cover, combinations of prototypes, class hulls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Polygon
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sumpool.report.plots import legend_below, marker_at
from sumpool.report.style import COLORS, plain_text
from sumpool.studies.shared.hulls import unpack_hulls
from sumpool.studies.shared.reporting import first_with_arrays
from sumpool.studies.shared.spacing import evenly_spaced
from sumpool.system.rows import Row, read_arrays

#: Maximum number of classes drawn, each in its own color; evenly spaced if there are more.
MOST_CLASSES = 10
#: Colors of classes: those of other figures without gray, and three more.
PAINTS = (*COLORS[:-1], "#C9B200", "#8C510A", "#000000")
#: Labels of the poolings, in display order.
SHORT = {"gap": "GAP", "gsp": "GSP"}


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the first row with arrays of each pooling, average pooling first."""
    return first_with_arrays(rows, lambda row: str(row.cell["pool"]), SHORT)


def shown_classes(arrays: dict[str, NDArray[Any]]) -> list[int]:
    """Return the indices of the classes to draw."""
    return evenly_spaced(len(arrays["classes"]), MOST_CLASSES)


def draw_cover(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw local features and the prototypes that cover them, one row of panels per pooling.

    Features are colored by class on the left and by nearest prototype on the right. ``rows`` are
    those of :func:`shown_rows`, with arrays in ``folder``.
    """
    figure = Figure(figsize=(8.8, 4.3 * len(rows) + 0.7))
    figure.set_layout_engine("constrained", h_pad=0.08, w_pad=0.08)
    grid = figure.subplots(len(rows), 2, squeeze=False)
    for (left, right), row in zip(grid, rows, strict=True):
        arrays = read_arrays(folder, row)
        _features_by_class(left, arrays)
        _features_by_prototype(right, arrays)
        delta = float(row.metrics["delta"])
        for axes, what in ((left, "by class"), (right, "by nearest prototype")):
            _discs(axes, arrays["prototypes"], delta)
            axes.plot(*arrays["prototypes"].T, "o", mfc="white", mec="black", ms=4.2, mew=0.9)
            _plane(axes, arrays["prototypes"] - delta, arrays["prototypes"] + delta)
            axes.set_title(
                f"{SHORT[row.cell['pool']]}: local features {what}, δ = {delta:.3f}", fontsize=10
            )
    handles = [
        *_class_handles(read_arrays(folder, rows[0]), ls=""),
        _mark("o", "white", "black", "prototype"),
        Patch(fc="0.93", ec="0.7", label="disc of radius δ around it"),
    ]
    legend_below(figure, handles, 6)
    return figure


def draw_images(folder: Path, row: Row) -> Figure:
    """Draw some images with their local features, active prototypes and both embeddings."""
    arrays = read_arrays(folder, row)
    count = len(arrays["images"])
    figure = Figure(figsize=(3.5 * count, 5.9))
    figure.set_layout_engine("constrained", h_pad=0.05, w_pad=0.06)
    grid = figure.subplots(2, count, squeeze=False, height_ratios=(1, 2.3))
    short = SHORT[row.cell["pool"]]
    for number, (above, below) in enumerate(grid.T):
        index = int(arrays["image_index"][number])
        above.imshow(arrays["images"][number], interpolation="nearest")
        above.set(xticks=[], yticks=[])
        above.spines[:].set_visible(False)
        above.set_title(f"class {_name(arrays, int(arrays['labels'][index]))}", fontsize=10)
        _embeddings_of(below, arrays, number, index, float(row.metrics["delta"]))
        below.set_title(
            f"error {arrays['image_errors'][number]:.3f} ≤ δ = {row.metrics['delta']:.3f}",
            fontsize=10,
        )
    handles = [
        _mark(".", COLORS[0], COLORS[0], "local feature, with a line to its prototype"),
        _mark("o", COLORS[4], "black", "active prototype; its area grows with its share"),
        Patch(fc="0.9", ec="0.55", label="hull of the active prototypes"),
        _mark("s", COLORS[1], "black", f"{short} embedding"),
        _mark("^", COLORS[2], "black", "convex combination of prototypes (PCC)"),
        Line2D([], [], color="0.35", ls=":", label="at distance δ from PCC"),
    ]
    legend_below(figure, handles, 3)
    return figure


def draw_hulls(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw the class hulls of active prototypes, of main prototypes, and of embeddings.

    Each of ``rows``, with arrays in ``folder``, has one row of panels.
    """
    figure = Figure(figsize=(11.4, 4.1 * len(rows) + 0.8))
    figure.set_layout_engine("constrained", h_pad=0.1, w_pad=0.06)
    grid = figure.subplots(len(rows), 3, squeeze=False)
    for line, row in zip(grid, rows, strict=True):
        arrays = read_arrays(folder, row)
        main = float(row.settings["main_share"])
        for axes, hulls, metric, what in (
            (line[0], "active", "overlap_mean", "active prototypes"),
            (line[1], "main", "main_overlap_mean", f"prototypes with > {main:.0%} of a class"),
            (line[2], "embedding", "embedding_overlap_mean", "embeddings"),
        ):
            points = arrays["pooled" if hulls == "embedding" else "prototypes"]
            _class_hulls(axes, arrays, hulls, points)
            axes.set_title(
                f"{SHORT[row.cell['pool']]}: {what}\nmean overlap {row.metrics[metric]:.0%}",
                fontsize=10,
            )
    handles = _class_handles(read_arrays(folder, rows[0]), ls="-")
    legend_below(figure, handles, MOST_CLASSES, title="class", title_fontsize=8.5)
    return figure


def _features_by_class(axes: Axes, arrays: dict[str, NDArray[Any]]) -> None:
    # In interleaved batches, so that no class covers all others.
    count = len(arrays["features"])
    for turn in np.array_split(np.random.default_rng(0).permutation(count), 12):
        features, classes = arrays["features"][turn], arrays["feature_classes"][turn]
        for number, place in enumerate(shown_classes(arrays)):
            own = features[classes == arrays["classes"][place]]
            axes.plot(*own.T, marker_at(number), color=PAINTS[number], ms=2.8, alpha=0.65, mew=0)


def _features_by_prototype(axes: Axes, arrays: dict[str, NDArray[Any]]) -> None:
    apart = arrays["features"][:, None] - arrays["prototypes"][None]
    nearest = (apart**2).sum(-1).argmin(1)
    for number in range(len(arrays["prototypes"])):
        color = PAINTS[number % len(PAINTS)]
        axes.plot(*arrays["features"][nearest == number].T, ".", color=color, ms=3.2, mew=0)


def _discs(axes: Axes, centers: NDArray[np.float32], radius: float) -> None:
    sizes = np.full(len(centers), 2 * radius)
    looks: tuple[dict[str, Any], ...] = (
        {"facecolor": "0.93", "lw": 0, "zorder": 0.2},
        {"facecolor": "none", "edgecolor": "0.8", "lw": 0.5, "zorder": 0.3},
    )
    for look in looks:
        discs = EllipseCollection(
            sizes, sizes, 0, units="x", offsets=centers, offset_transform=axes.transData, **look
        )
        axes.add_collection(discs, autolim=False)


def _embeddings_of(
    axes: Axes, arrays: dict[str, NDArray[Any]], number: int, index: int, delta: float
) -> None:
    features, shares = arrays["image_features"][number], arrays["image_histograms"][number]
    prototypes = arrays["prototypes"]
    apart = features[:, None] - prototypes[None]
    for feature, place in zip(features, (apart**2).sum(-1).argmin(1), strict=True):
        axes.plot(*np.stack([feature, prototypes[place]]).T, color="0.7", lw=0.6, zorder=1)
    used = shares > 0
    corners = unpack_hulls(arrays, "image")[number]
    axes.add_patch(Polygon(corners, fc="0.9", ec="0.55", lw=0.8, zorder=0.5))
    axes.plot(*features.T, ".", color=COLORS[0], ms=4, zorder=2)
    x, y = prototypes[used].T
    sizes = 20 + 500 * shares[used]
    axes.scatter(x, y, sizes, COLORS[4], alpha=0.75, ec="black", lw=0.7, zorder=1.5)
    pooled, combined = arrays["pooled"][index], arrays["combined"][index]
    axes.plot(*pooled, "s", color=COLORS[1], mec="black", mew=0.7, ms=7, zorder=3)
    axes.plot(*combined, "^", color=COLORS[2], mec="black", mew=0.7, ms=7, zorder=3)
    axes.add_patch(Circle((combined[0], combined[1]), delta, fill=False, ec="0.35", ls=":"))
    _plane(axes, features, prototypes[used], combined[None] - delta, combined[None] + delta)


def _class_hulls(
    axes: Axes, arrays: dict[str, NDArray[Any]], name: str, points: NDArray[np.float32]
) -> None:
    corners = unpack_hulls(arrays, name)
    for number, place in enumerate(shown_classes(arrays)):
        color = PAINTS[number]
        if name == "embedding":
            own = points[arrays["labels"] == arrays["classes"][place]]
            axes.plot(*own.T, ".", color=color, ms=2.5, alpha=0.7)
        axes.add_patch(Polygon(corners[place], fc=color, alpha=0.1, lw=0, zorder=0.5))
        axes.add_patch(Polygon(corners[place], fill=False, ec=color, lw=1.5, zorder=1))
    if name != "embedding":
        axes.plot(*points.T, "o", mfc="white", mec="black", ms=3.5, mew=0.8)
    _plane(axes, points)


def _plane(axes: Axes, *points: NDArray[np.floating[Any]]) -> None:
    everything = np.concatenate(points)
    low, high = everything.min(0), everything.max(0)
    middle, reach = (low + high) / 2, 0.56 * max(float((high - low).max()), 1e-3)
    axes.set(
        xlim=(middle[0] - reach, middle[0] + reach),
        ylim=(middle[1] - reach, middle[1] + reach),
        aspect="equal",
    )
    axes.set_xlabel("coordinate 1", fontsize=9)
    axes.set_ylabel("coordinate 2", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _class_handles(arrays: dict[str, NDArray[Any]], ls: str) -> list[Artist]:
    return [
        Line2D(
            [],
            [],
            ls=ls,
            lw=2,
            marker="" if ls else marker_at(number),
            ms=5,
            color=PAINTS[number],
            label=_name(arrays, int(arrays["classes"][place])),
        )
        for number, place in enumerate(shown_classes(arrays))
    ]


def _name(arrays: dict[str, NDArray[Any]], label: int) -> str:
    return plain_text(str(arrays["class_names"][label]).replace("_", " "))


def _mark(marker: str, face: str, edge: str, label: str) -> Line2D:
    return Line2D([], [], ls="", marker=marker, ms=6, mfc=face, mec=edge, label=label)
