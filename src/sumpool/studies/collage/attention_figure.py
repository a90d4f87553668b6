"""Attention figure: collages under heat maps of the pooling weights of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sumpool.report.labels import losses_and_rates, rate_name, trained_with
from sumpool.report.overlays import MAP, blended, stored_image
from sumpool.report.section import values
from sumpool.studies.shared.reporting import first_with_arrays
from sumpool.system.rows import Row, read_arrays

#: Methods to show, if they have arrays.
SHOWN = ("gap", "gemean", "delf", "cbam", "gsp", "gsp+zs")
#: Top of the color scale in units of an equal weight: one tile of four has all of it, evenly.
TOP = 4.0
_SIDE = 160
_OUTLINE = "#56B4E9"


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the first seed of each method shown, all with the same loss and learning rate.

    Loss and rate are those with which GSP retrieves best; without GSP, the first with arrays.
    """
    seen = [row for row in rows if row.arrays is not None and row.cell["method"] in SHOWN]
    if not seen:
        return []

    def quality(pair: tuple[str, float]) -> float:
        own = [row for row in seen if trained_with(row) == pair and row.cell["method"] == "gsp"]
        return max(values(own, "map_at_r"), default=-1.0)

    chosen = max(losses_and_rates(seen), key=quality)
    own = [row for row in seen if trained_with(row) == chosen]
    return first_with_arrays(own, lambda row: str(row.cell["method"]), SHOWN)


def draw(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw the collages and, below them, one row per method with its weights as heat maps.

    ``rows`` are those of :func:`shown_rows`; arrays without ``images`` show only weights.
    """
    stored = [read_arrays(folder, row) for row in rows]
    count = len(stored[0]["weights"])
    figure = Figure(figsize=(1.02 * count + 1.75, 1.02 * (len(rows) + 1) + 0.95))
    figure.set_layout_engine("constrained", h_pad=0.015, w_pad=0.015, hspace=0, wspace=0)
    # A narrow column in the middle separates train and test.
    widths = [1.0] * (count // 2) + [0.12] + [1.0] * (count - count // 2)
    grid = figure.subplots(
        len(rows) + 1, count + 1, gridspec_kw={"width_ratios": widths}, squeeze=False
    )
    for line in grid[:, count // 2]:
        line.set_visible(False)
    columns = [column for column in range(count + 1) if column != count // 2]
    for number, column in enumerate(columns):
        image = stored_image(stored[0], number, _SIDE)
        _show(grid[0, column], image, int(stored[0]["foreground_tile"][number]))
    for line, row, arrays in zip(grid[1:], rows, stored, strict=True):
        for number, column in enumerate(columns):
            image, weights = stored_image(arrays, number, _SIDE), arrays["weights"][number]
            heat = blended(image, weights * weights.size / weights.sum(), TOP)
            _show(line[column], heat, int(arrays["foreground_tile"][number]))
        share = values([row], "foreground_weight")
        words = f"\n{share[0]:.0%} on\nforeground" if share else ""
        _label(line[0], f"{row.cell['method']}{words}")
    _label(grid[0, 0], "collage")
    for column, title in ((columns[0], "training images"), (columns[count // 2], "test images")):
        grid[0, column].set_title(title, fontsize=10, loc="left")
    scale = ScalarMappable(Normalize(0, TOP), MAP)
    bar = figure.colorbar(
        scale, ax=grid, orientation="horizontal", shrink=0.55, aspect=45, extend="max", pad=0.02
    )
    bar.set_ticks([0, 1, 2, 3, 4], labels=["0", "1 = equal", "2", "3", "4 = all on one tile"])
    bar.ax.tick_params(labelsize=8)
    loss, rate = trained_with(rows[0])
    bar.set_label(f"relative pooling weight; loss {loss}, learning rate {rate_name(rate)}", size=9)
    return figure


def _show(axes: Axes, image: NDArray[Any], tile: int) -> None:
    axes.imshow(image)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    half = _SIDE / 2
    corner = (tile % 2 * half - 0.5, tile // 2 * half - 0.5)
    axes.add_patch(Rectangle(corner, half, half, fill=False, ec=_OUTLINE, lw=1.8, clip_on=False))


def _label(axes: Axes, words: str) -> None:
    axes.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
