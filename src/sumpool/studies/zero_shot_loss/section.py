"""The study of the zero-shot loss on a page: its variants against none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.labels import (
    conditions,
    dataset_label,
    loss_name,
    losses,
    losses_and_rates,
    rate_name,
    trained_with,
)
from sumpool.report.section import (
    NOTHING,
    Section,
    measured,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
)
from sumpool.report.style import COLORS, MARKERS, mean_and_deviation, plain_text, style_axes
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.rows import Row

#: The variant that the others are compared with.
NONE = "none"
#: Metric → column, digits, scale.
_COLUMNS = {
    "start_gradient_ratio": ("gradient ratio, start", 2, 1.0),
    "gradient_ratio": ("gradient ratio, end", 2, 1.0),
    "foreground_weight": ("weight on foreground [%]", 1, 100.0),
    "start_zero_shot_loss": ("L_ZS, start", 1, 1.0),
    "zero_shot_loss": ("L_ZS, end", 2, 1.0),
    "attribute_perplexity": ("attribute perplexity", 1, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """For each loss and learning rate, one line a variant."""
    return [_table(rows, pair) for pair in losses_and_rates(rows)]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    return Section(
        title="When the zero-shot loss helps",
        question=(
            "The zero-shot loss L_ZS can be weighed, scaled, scheduled and solved in many ways. "
            f"Which of them, added to sum pooling, gains on {dataset_label(rows[0].settings)} "
            "over none at all?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(draw, rows),
                "The change of MAP@R by each variant of the zero-shot loss: a dot a seed, a bar "
                "for the mean, for each loss and learning rate.",
            )
        ],
        notes=[
            f"Change: against {NONE!r} with the same loss, learning rate and seed. Gradient ratio: "
            "‖λ ∇L_ZS‖ / ‖(1 − λ) ∇L‖, both with respect to the features. Attribute perplexity: "
            "over how many prototypes an image's attributes are spread, counted as if evenly.",
            *conditions(rows[0].settings),
        ],
        provenance=provenance(rows),
    )


def changes(rows: Sequence[Row], variant: str, pair: tuple[str, float]) -> list[float]:
    """MAP@R of a variant less that of none, seed by seed, for the seeds that both have."""

    def by_seed(name: str) -> dict[int, float]:
        return {
            int(row.cell["seed"]): float(row.metrics["map_at_r"])
            for row in rows
            if row.cell["variant"] == name and trained_with(row) == pair
        }

    own, base = by_seed(variant), by_seed(NONE)
    return [own[seed] - base[seed] for seed in sorted(own) if seed in base]


def draw(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw the change of MAP@R by each variant: a dot a seed and a bar for the mean.

    Args:
        rows: Rows of the study of the zero-shot loss.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    variants = [name for name in _variants(rows) if name != NONE] or [NONE]
    panels = losses(rows)
    rates = sorted({float(row.cell["lr"]) for row in rows}, reverse=True)
    figure = Figure(
        figsize=(3.7 * len(panels) + 2.0, max(2.4, 0.36 * len(variants) + 1.3)),
        layout="constrained",
    )
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, loss in zip(grid, panels, strict=True):
        style_axes(axes, f"loss {loss}", xlabel="change of MAP@R [points]", grid="x")
        axes.axvline(0, color="0.3", lw=1)
        for line in range(1, len(variants), 2):
            axes.axhspan(line - 0.5, line + 0.5, color="0.96", lw=0, zorder=0)
        own = [row for row in rows if loss_name(row) == loss]
        for position, rate in enumerate(rates):
            apart = 0.3 * (position - (len(rates) - 1) / 2)
            found = [changes(own, variant, (loss, rate)) for variant in variants]
            _dots(axes, found, apart, position)
    grid[0].set_yticks(range(len(variants)), [plain_text(name) for name in variants])
    grid[0].set_ylim(len(variants) - 0.5, -0.5)
    handles = [
        grid[0].plot([], [], ls="", **_look(position), label=f"learning rate {rate_name(rate)}")[0]
        for position, rate in enumerate(rates)
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(rates), fontsize=8.5, frameon=False
    )
    figure.savefig(out, dpi=140)


def _table(rows: Sequence[Row], pair: tuple[str, float]) -> Table:
    own = [row for row in rows if trained_with(row) == pair]
    columns = measured(rows, _COLUMNS)
    lines = []
    for variant in _variants(rows):
        cells = [row for row in own if row.cell["variant"] == variant]
        change = changes(own, variant, pair)
        lines.append(
            [
                variant,
                over_seeds(cells, "map_at_r", 1, 100),
                _signed(change) if variant != NONE and change else NOTHING,
                over_seeds(cells, "precision_at_1", 1, 100),
                *(over_seeds(cells, name, *look[1:]) for name, look in columns.items()),
            ]
        )
    header = ["variant", "MAP@R [%]", "change [points]", "P@1 [%]"]
    header += [label for label, _, _ in columns.values()]
    loss, rate = pair
    caption = f"Loss {loss}, learning rate {rate_name(rate)}, {seeds_in_words(own)}"
    return Table(header, lines, caption)


def _signed(change: Sequence[float]) -> str:
    words = mean_and_spread(change, 1, 100)
    return words if words.startswith("-") else f"+{words}"


def _variants(rows: Sequence[Row]) -> list[str]:
    """None first; then by their mean change over all losses, rates and seeds, the best first."""
    pairs = losses_and_rates(rows)

    def change(variant: str) -> float:
        found = [value for pair in pairs for value in changes(rows, variant, pair)]
        return sum(found) / len(found) if found else 0.0

    names = {str(row.cell["variant"]) for row in rows}
    return sorted(names, key=lambda name: (name != NONE, -change(name), name))


def _look(position: int) -> dict[str, Any]:
    return {
        "marker": MARKERS[position % len(MARKERS)],
        "color": COLORS[position % len(COLORS)],
        "markersize": 4.5,
    }


def _dots(axes: Axes, found: Sequence[Sequence[float]], apart: float, position: int) -> None:
    look = _look(position)
    for line, change in enumerate(found):
        if not change:
            continue
        mean, deviation = mean_and_deviation(change)
        place = line + apart
        points = 100 * np.asarray(change)
        axes.plot(points, np.full(len(points), place), ls="", alpha=0.6, **look)
        if len(points) > 1:
            axes.hlines(place, mean - deviation, mean + deviation, color=look["color"], lw=1.2)
            axes.vlines(mean, place - 0.14, place + 0.14, color=look["color"], lw=2.4)
