"""The figures of the prediction study: attributes by class, and where prototypes take them from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from sumpool.report.overlays import stored_image
from sumpool.report.style import COLORS
from sumpool.system.rows import Row, read_arrays

#: Colours of prototypes: no grey, which is what images are drawn in.
PAINTS = (*COLORS[:-1], "#F0E442")
_SIDE = 160
#: How much of the image is left under a position that has the most weight.
_LEAST_IMAGE = 0.15


def variant(row: Row) -> tuple[float, bool]:
    """What tells trainings apart but for their seed: ε, and whether the zero-shot loss is used."""
    return float(row.cell["eps"]), bool(row.cell["zero_shot"])


def variant_name(key: tuple[float, bool]) -> str:
    """A variant in words."""
    eps, zero_shot = key
    return f"ε = {eps:g}, {'with' if zero_shot else 'without'} L_ZS"


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """The first row with arrays of each variant, small ε and no zero-shot loss first."""
    seen = [row for row in rows if row.arrays is not None]
    seen.sort(key=lambda row: int(row.cell["seed"]), reverse=True)
    first = {variant(row): row for row in seen}
    return [first[key] for key in sorted(first)]


def draw_histograms(folder: Path, rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw the share of each prototype in each class, one panel a variant, all on one scale.

    Args:
        folder: Where the arrays of the rows are.
        rows: Of :func:`shown_rows`, at least one.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
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
            axes.text(
                column, line, f"{value:.0f}", ha="center", va="center", fontsize=7, color=color
            )
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
    figure.savefig(out, dpi=140)


def draw_maps(folder: Path, rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw images and below them, a line for each variant, which prototype takes each position.

    The colour is that of the prototype that takes most; it is the stronger the more weight the
    position has, of the largest in its image.

    Args:
        folder: Where the arrays of the rows are.
        rows: Of :func:`shown_rows`, at least one.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
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
        grid[0, number].set_title(_wrapped(name), fontsize=7.5)
    for line, arrays in zip(grid[1:], stored, strict=True):
        for number in range(count):
            picture = coloured(
                stored_image(arrays, number, _SIDE),
                arrays["dominant"][number],
                arrays["weights"][number],
            )
            _show(line[number], picture)
    labels = ["test image", *map(_name, rows)]
    for axes, label in zip(grid[:, 0], labels, strict=True):
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    figure.legend(
        handles=[Patch(color=_color(it), label=str(it + 1)) for it in range(prototypes)],
        title="prototype that takes most; stronger where the pooling weight is larger",
        title_fontsize=9,
        loc="outside lower center",
        ncols=prototypes,
        fontsize=8,
        frameon=False,
    )
    figure.savefig(out, dpi=140)


def coloured(
    image: NDArray[np.uint8], dominant: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.uint8]:
    """The image (H, W, 3) in grey under the colours of its dominant prototypes (h, w).

    Args:
        image: The image.
        dominant: The prototype of each position.
        weights: Pooling weights (h, w); the largest is drawn strongest.
    """
    grey = np.asarray(Image.fromarray(image).convert("L"))[..., None] / 255
    height, width = grey.shape[:2]
    down = np.arange(height) * dominant.shape[0] // height
    across = np.arange(width) * dominant.shape[1] // width
    colors = np.array([to_rgb(_color(it)) for it in range(int(dominant.max()) + 1)])[dominant]
    strength = (1 - _LEAST_IMAGE) * np.clip(weights / max(float(weights.max()), 1e-12), 0, 1)
    paint, opacity = colors[down][:, across], strength[down][:, across][..., None]
    mixed: NDArray[np.uint8] = (255 * (opacity * paint + (1 - opacity) * grey) + 0.5).astype(
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


def _wrapped(name: str, length: int = 13) -> str:
    lines = [""]
    for word in name.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > length:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
