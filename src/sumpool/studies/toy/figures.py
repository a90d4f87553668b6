"""Figure of the toy study: the map, and the weights that three poolings give its pixels."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from sumpool.system.files import StoreError
from sumpool.system.rows import Row, read_arrays

#: Panel titles by method; P1 and P2 are shown at their smallest share μ, which is too small.
PANELS = {
    "P1": "P1, hard, μ = {mu:g}",
    "P2": "P2, smooth, μ = {mu:g}, ε = {eps:g}",
    "GAP": "average pooling",
}


def draw(folder: Path, rows: list[Row]) -> Figure:
    """Draw the map and the weights of P1, P2 and GAP on one scale, higher is darker.

    Weights are in units of 1/n, so that average pooling has 1 everywhere. Shows the first seed,
    whose arrays are in ``folder``.
    """
    seed = min(row.cell["seed"] for row in rows)
    rows = [row for row in rows if row.cell["seed"] == seed]
    chosen = {method: _row_of(rows, method) for method in PANELS}

    figure = Figure(figsize=(6.0, 6.4))
    figure.set_layout_engine("constrained", h_pad=0.15)
    grid = figure.subplots(2, 2)
    first = read_arrays(folder, chosen["P1"])
    grid[0, 0].imshow(first["features"])
    grid[0, 0].set_title("feature map", fontsize=9)
    side, block = len(first["features"]), int(chosen["P1"].settings["block"])
    for corner, name in ((0, "red"), (side - block, "blue")):
        middle = corner + (block - 1) / 2
        grid[0, 0].text(middle, middle, name, color="white", ha="center", va="center", fontsize=12)
    grid[0, 0].text(side - 1, 1, "green", color="black", ha="right", va="center", fontsize=12)

    pixels = side * side
    top = pixels * max(row.metrics["largest"] for row in chosen.values())
    image: AxesImage | None = None
    for axes, (method, row) in zip(grid.flat[1:], chosen.items(), strict=True):
        weights = pixels * read_arrays(folder, row)["weights"]
        image = axes.imshow(weights, cmap="Greys", vmin=0, vmax=top)
        name = PANELS[method].format(mu=row.cell["mu"], eps=row.settings["eps"])
        axes.set_title(
            f"{name}\n{row.metrics['foreground_weight']:.1%} of weight on red and blue\n"
            f"{row.metrics['covered']:.0%} of their pixels covered",
            fontsize=9,
        )
    for axes in grid.flat:
        _frame(axes, side, block, outlined=axes is not grid[0, 0])
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.6, pad=0.05)
    bar.set_label("pooling weight in units of 1/n (average pooling = 1)")
    return figure


def _row_of(rows: list[Row], method: str) -> Row:
    own = [row for row in rows if row.cell["method"] == method]
    if not own:
        raise StoreError(f"the toy study holds no row of {method}: run it to its end first")
    return min(own, key=lambda row: float(row.cell["mu"]))


def _frame(axes: Axes, side: int, block: int, *, outlined: bool) -> None:
    axes.set_xticks(range(0, side, 3))
    axes.set_yticks(range(0, side, 3))
    axes.tick_params(labelsize=8)
    axes.set_xlabel("column", fontsize=8)
    axes.set_ylabel("row", fontsize=8)
    if outlined:
        for corner, color, style in ((0, "#D55E00", "-"), (side - block, "#0072B2", "--")):
            square = (corner - 0.5, corner - 0.5)
            axes.add_patch(
                Rectangle(square, block, block, fill=False, ec=color, ls=style, lw=2, clip_on=False)
            )
