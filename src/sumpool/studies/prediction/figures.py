"""Figures of the prediction study: attributes by class and by position in the image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from sumpool.report.overlays import stored_image
from sumpool.report.plots import legend_below
from sumpool.report.style import COLORS
from sumpool.studies.shared.reporting import first_with_arrays
from sumpool.system.rows import Row, read_arrays

#: Colors of prototypes, without gray: images are drawn in gray.
PAINTS = (*COLORS[:-1], "#F0E442")
_SIDE = 160
#: Opacity of the image at the position with the largest weight.
_LEAST_IMAGE = 0.15


def variant(row: Row) -> tuple[float, bool]:
    """Return the variant of a run: ε, and whether the zero-shot loss is used."""
    return float(row.cell["eps"]), bool(row.cell["zero_shot"])


def variant_name(key: tuple[float, bool]) -> str:
    """Return the label of a variant."""
    eps, zero_shot = key
    return f"ε = {eps:g}, {'with' if zero_shot else 'without'} L_ZS"


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the first row with arrays of each variant, small ε and no zero-shot loss first."""
    return first_with_arrays(rows, variant, sorted(set(map(variant, rows))))


def draw_histograms(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw the share of each prototype in each class, one panel per variant, on one scale."""
    stored = [read_arrays(folder, row) for row in rows]
    classes, prototypes = stored[0]["histograms"].shape
    top = 100 * max(float(arrays["histograms"].max()) for arrays in stored)
    figure = Figure(
        figsize=(1.9 + 0.42 * prototypes * len(rows), 1.2 + 0.23 * classes), layout="constrained"
    )
    grid = figure.subplots(1, len(rows), squeeze=False)[0]
    for axes, row, arrays in zip(grid, rows, stored, strict=True):
        shares = 100 * arrays["histograms"]
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=top, aspect="auto")
        for line, column in np.ndindex(shares.shape):
            value = float(shares[line, column])
            color = "white" if value > 0.6 * top else "black"
            words = f"{value:.0f}"
            axes.text(column, line, words, ha="center", va="center", fontsize=7, color=color)
        axes.set_title(_name(row), fontsize=10)
        axes.set_xticks(range(prototypes), labels=[str(it + 1) for it in range(prototypes)])
        axes.set_yticks(range(classes), labels=[])
        axes.tick_params(labelsize=8, length=0)
        axes.set_xlabel("prototype", fontsize=9)
        axes.spines[:].set_visible(False)
    names = [str(name).replace("_", " ") for name in stored[0]["class_names"]]
    grid[0].set_yticks(range(classes), labels=names)
    bar = figure.colorbar(image, ax=grid, pad=0.02, aspect=30)
    bar.set_label("share of the attributes [%]", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return figure


def draw_maps(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw images and, below them, one row per variant with the dominant prototype by position.

    The color is that of the prototype that takes the most from the position. It is stronger the
    more weight the position has, relative to the largest weight in the image.
    """
    stored = [read_arrays(folder, row) for row in rows]
    first = stored[0]
    count, prototypes = len(first["dominant"]), first["histograms"].shape[1]
    figure = Figure(figsize=(1.0 * count + 1.3, 1.02 * (len(rows) + 1) + 0.9))
    figure.set_layout_engine("constrained", h_pad=0.03, w_pad=0.02, hspace=0, wspace=0)
    grid = figure.subplots(len(rows) + 1, count, squeeze=False)
    for number in range(count):
        _show(grid[0, number], stored_image(first, number, _SIDE))
        name = str(first["class_names"][first["image_classes"][number]]).replace("_", " ")
        grid[0, number].set_title(
            fill(name, 13, break_long_words=False, break_on_hyphens=False), fontsize=7.5
        )
    for line, arrays in zip(grid[1:], stored, strict=True):
        for number in range(count):
            image = stored_image(arrays, number, _SIDE)
            _show(
                line[number], colored(image, arrays["dominant"][number], arrays["weights"][number])
            )
    labels = ["test image", *map(_name, rows)]
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    legend_below(
        figure,
        [Patch(color=_color(it), label=str(it + 1)) for it in range(prototypes)],
        prototypes,
        title="prototype that takes most; stronger where the pooling weight is larger",
        title_fontsize=9,
        fontsize=8,
    )
    return figure


def colored(
    image: NDArray[np.uint8], dominant: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.uint8]:
    """Overlay the image (H, W, 3) in gray with the colors of dominant prototypes, by weight."""
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None] / 255
    height, width = gray.shape[:2]
    down = np.arange(height) * dominant.shape[0] // height
    across = np.arange(width) * dominant.shape[1] // width
    colors = np.array([to_rgb(_color(it)) for it in range(int(dominant.max()) + 1)])[dominant]
    strength = (1 - _LEAST_IMAGE) * np.clip(weights / max(float(weights.max()), 1e-12), 0, 1)
    paint, opacity = colors[down][:, across], strength[down][:, across][..., None]
    mixed: NDArray[np.uint8] = (255 * (opacity * paint + (1 - opacity) * gray) + 0.5).astype(
        np.uint8
    )
    return mixed


def _color(prototype: int) -> str:
    return PAINTS[prototype % len(PAINTS)]


def _name(row: Row) -> str:
    return variant_name(variant(row)).replace(", ", "\n").replace("L_ZS", "$L_{ZS}$")


def _show(axes: Axes, image: NDArray[Any]) -> None:
    axes.imshow(image)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
