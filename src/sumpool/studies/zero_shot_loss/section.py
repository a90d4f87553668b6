"""Report section on the zero-shot loss: its variants against none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.labels import (
    dataset_label,
    loss_name,
    losses,
    losses_and_rates,
    rate_name,
    trained_with,
)
from sumpool.report.plots import color_at, legend_below, marker_at, panel_row
from sumpool.report.section import NOTHING, Section, measured, over_seeds, seeds_label
from sumpool.report.style import mean_and_deviation, plain_text, style_axes
from sumpool.report.tables import Table
from sumpool.studies.shared.reporting import Column, averages, differences, headings, signed
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

#: Variant that the others are compared with.
NONE = "none"
_COLUMNS: dict[str, Column] = {
    "start_gradient_ratio": ("gradient ratio, start", 2, 1.0),
    "gradient_ratio": ("gradient ratio, end", 2, 1.0),
    "foreground_weight": ("weight on foreground [%]", 1, 100.0),
    "start_zero_shot_loss": ("L_ZS, start", 1, 1.0),
    "zero_shot_loss": ("L_ZS, end", 2, 1.0),
    "attribute_perplexity": ("attribute perplexity", 1, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate one row per variant, one table per loss and learning rate."""
    return [_table(rows, pair) for pair in losses_and_rates(rows)]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and the change of MAP@R by each variant."""
    return study_section(
        rows,
        title="When the zero-shot loss helps",
        question=(
            "The zero-shot loss L_ZS can be weighed, scaled, scheduled and solved in many ways. "
            f"Which of them, added to sum pooling, gains on {dataset_label(rows[0].settings)} "
            "over none at all?"
        ),
        tables=tables(rows),
        figures={
            "The change of MAP@R by each variant of the zero-shot loss: a dot per seed, a bar "
            "for the mean, for each loss and learning rate.": draw(rows)
        },
        notes=[
            f"Change: against {NONE!r} with the same loss, learning rate and seed. Gradient ratio: "
            "‖λ ∇L_ZS‖ / ‖(1 − λ) ∇L‖, both with respect to the features. Attribute perplexity: "
            "over how many prototypes an image's attributes are spread, counted as if evenly."
        ],
    )


def changes(rows: Sequence[Row], variant: str, pair: tuple[str, float]) -> list[float]:
    """Return the MAP@R of a variant minus that of none, for each seed that both have."""
    own, base = (
        [row for row in rows if row.cell["variant"] == name and trained_with(row) == pair]
        for name in (variant, NONE)
    )
    return differences(own, base)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the change of MAP@R by each variant: a dot per seed and a bar for the mean."""
    variants = [name for name in _variants(rows) if name != NONE] or [NONE]
    names = losses(rows)
    rates = sorted({float(row.cell["lr"]) for row in rows}, reverse=True)
    width, height = 3.7 * len(names) + 2.0, max(2.4, 0.36 * len(variants) + 1.3)
    figure, panels = panel_row(names, width, height, sharex=True, sharey=True)
    for loss, axes in panels.items():
        style_axes(axes, f"loss {loss}", xlabel="change of MAP@R [points]", grid="x")
        axes.axvline(0, color="0.3", lw=1)
        for line in range(1, len(variants), 2):
            axes.axhspan(line - 0.5, line + 0.5, color="0.96", lw=0, zorder=0)
        own = [row for row in rows if loss_name(row) == loss]
        for position, rate in enumerate(rates):
            apart = 0.3 * (position - (len(rates) - 1) / 2)
            found = [changes(own, variant, (loss, rate)) for variant in variants]
            _dots(axes, found, apart, position)
    first = panels[names[0]]
    first.set_yticks(range(len(variants)), [plain_text(name) for name in variants])
    first.set_ylim(len(variants) - 0.5, -0.5)
    handles = [
        first.plot([], [], ls="", **_look(position), label=f"learning rate {rate_name(rate)}")[0]
        for position, rate in enumerate(rates)
    ]
    legend_below(figure, handles, len(rates))
    return figure


def _table(rows: Sequence[Row], pair: tuple[str, float]) -> Table:
    own = [row for row in rows if trained_with(row) == pair]
    columns = measured(rows, _COLUMNS)
    lines = []
    for variant in _variants(rows):
        cells = [row for row in own if row.cell["variant"] == variant]
        lines.append(
            [
                variant,
                over_seeds(cells, "map_at_r", 1, 100),
                NOTHING if variant == NONE else signed(changes(own, variant, pair)),
                over_seeds(cells, "precision_at_1", 1, 100),
                *averages(cells, columns),
            ]
        )
    header = ["variant", "MAP@R [%]", "change [points]", "P@1 [%]", *headings(columns)]
    loss, rate = pair
    caption = f"Loss {loss}, learning rate {rate_name(rate)}, {seeds_label(own)}"
    return Table(header, lines, caption)


def _variants(rows: Sequence[Row]) -> list[str]:
    """Return "none", then the others by mean change over losses, rates and seeds, best first."""
    pairs = losses_and_rates(rows)

    def change(variant: str) -> float:
        found = [value for pair in pairs for value in changes(rows, variant, pair)]
        return sum(found) / len(found) if found else 0.0

    names = {str(row.cell["variant"]) for row in rows}
    return sorted(names, key=lambda name: (name != NONE, -change(name), name))


def _look(position: int) -> dict[str, Any]:
    return {"marker": marker_at(position), "color": color_at(position), "markersize": 4.5}


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
