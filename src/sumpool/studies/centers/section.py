"""Report section on center regularizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sumpool.report.labels import dataset_label, in_given_order, loss_name, losses
from sumpool.report.plots import color_at, marker_at, panel_row
from sumpool.report.section import NOTHING, Section, grouped, over_seeds, seeds_label, values
from sumpool.report.style import mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.studies.centers.experiment import CONSTANTS
from sumpool.studies.shared.reporting import Column, averages, headings
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

#: Regularizers in the order of tables and colors.
ORDER = ("none", *CONSTANTS)
_COLUMNS: dict[str, Column] = {
    "map_at_r": ("MAP@R", 1, 100.0),
    "precision_at_1": ("P@1", 1, 100.0),
    "validation_map_at_r": ("validation MAP@R", 1, 100.0),
    "mean_cosine": ("mean cosine", 2, 1.0),
    "nearest_cosine": ("nearest cosine", 2, 1.0),
    "uniformity": ("uniformity", 2, 1.0),
}


class RegularizerLevel(NamedTuple):
    """Regularizer of a cell: its name, constant (None if it has none) and weight."""

    regularizer: str
    lam: float | None
    weight: float

    def words(self) -> str:
        """Return the level as text for a sentence."""
        if self.regularizer == "none":
            return "none"
        constant = "" if self.lam is None else f" λ {self.lam:g}"
        return f"{self.regularizer}{constant} × {self.weight:g}"


def level_of(row: Row) -> RegularizerLevel:
    """Return the level of a cell."""
    lam = row.cell["lam"]
    return RegularizerLevel(
        str(row.cell["regularizer"]), None if lam is None else float(lam), float(row.cell["weight"])
    )


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate one row per regularizer, constant and weight, one table per loss."""
    return [
        Table(
            ["regularizer", "λ", "weight", *headings(_COLUMNS)],
            [
                [
                    level.regularizer,
                    NOTHING if level.lam is None else f"{level.lam:g}",
                    NOTHING if level.regularizer == "none" else f"{level.weight:g}",
                    *averages(own, _COLUMNS),
                ]
                for level, own in _levels(rows, loss).items()
            ],
            f"Loss {loss}, test images of {dataset_label(rows[0].settings)}; retrieval in %, "
            f"centers of the training classes at the best step; {seeds_label(rows)}",
        )
        for loss in losses(rows)
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and MAP@R against the uniformity of centers."""
    return study_section(
        rows,
        title="Where class centers lie",
        question=(
            "Proxy losses learn a center for each class. Does it help unseen classes of "
            f"{dataset_label(rows[0].settings)} to spread these centers, and is it the near or "
            "the far pairs that should be pushed?"
        ),
        tables=tables(rows),
        figures={
            "MAP@R against the uniformity of centers, a panel for each loss. Color and marker "
            "name the regularizer, size its weight; an empty marker is the smaller constant. "
            "Bars are standard deviations over seeds, the line is the loss alone.": draw(rows)
        },
        notes=[
            "Uniformity is log mean e^(−2 d²) over pairs of centers: smaller is more even.",
            *chosen_by_validation(rows),
        ],
    )


def chosen_by_validation(rows: Sequence[Row]) -> list[str]:
    """State, per loss, the regularizer with the best validation MAP@R, and the loss alone."""
    sentences = []
    for loss in losses(rows):
        levels = _levels(rows, loss)
        alone = levels.pop(RegularizerLevel("none", None, 0.0), [])
        if not alone or not levels:
            continue
        best = max(levels, key=lambda level: fmean(values(levels[level], "validation_map_at_r")))
        sentences.append(
            f"{loss}: validation chooses {best.words()}; test MAP@R "
            f"{over_seeds(levels[best], 'map_at_r', 1, 100)}, without a regularizer "
            f"{over_seeds(alone, 'map_at_r', 1, 100)}."
        )
    return sentences


def draw(rows: Sequence[Row]) -> Figure:
    """Draw MAP@R against the uniformity of centers, one panel per loss."""
    names = in_given_order((level_of(row).regularizer for row in rows), ORDER)
    figure, panels = panel_row(losses(rows), 4.2 * len(losses(rows)) + 1.5, 3.5)
    for loss, axes in panels.items():
        style_axes(
            axes, loss, xlabel="uniformity of centers (left is more even)", ylabel="MAP@R [%]"
        )
        axes.xaxis.set_major_locator(MaxNLocator(5))
        _points(axes, _levels(rows, loss), names)
    handles = [
        Line2D([], [], color=_color(names, it), marker=_marker(names, it), ls="", label=it)
        for it in names
    ]
    handles += _keys(rows)
    figure.legend(handles=handles, loc="outside right center", fontsize=8.5, frameon=False)
    return figure


def _points(axes: Axes, levels: dict[RegularizerLevel, list[Row]], names: Sequence[str]) -> None:
    weights = _weights(levels)
    for level, own in levels.items():
        across, wide = mean_and_deviation(values(own, "uniformity"), 1.0)
        up, high = mean_and_deviation(values(own, "map_at_r"))
        color = _color(names, level.regularizer)
        lams = {it.lam for it in levels if it.regularizer == level.regularizer} - {None}
        empty = len(lams) > 1 and level.lam == min(lams, key=lambda it: it or 0.0)
        axes.errorbar(
            across,
            up,
            xerr=wide or None,
            yerr=high or None,
            color=color,
            ecolor=color,
            elinewidth=0.8,
            marker=_marker(names, level.regularizer),
            markersize=_size(weights, level.weight),
            markerfacecolor="white" if empty else color,
        )
        if level.regularizer == "none":
            axes.axhline(up, color=color, lw=0.8, ls=":")


def _keys(rows: Sequence[Row]) -> list[Line2D]:
    """Return legend entries that explain marker size and fill."""
    weights = _weights(map(level_of, rows))
    keys = [
        Line2D(
            [], [], color="0.6", marker="o", ls="", ms=_size(weights, it), label=f"weight {it:g}"
        )
        for it in weights
        if it > 0
    ]
    empty = Line2D([], [], color="0.6", marker="o", ls="", mfc="white", label="smaller λ")
    return [*keys, empty]


def _weights(levels: Iterable[RegularizerLevel]) -> list[float]:
    return sorted({level.weight for level in levels})


def _size(weights: Sequence[float], weight: float) -> float:
    """Return the marker size; the loss alone, at weight 0, is a star, which looks small."""
    return 9.0 if weight == 0 else 4.5 + 2.5 * weights.index(weight) / max(1, len(weights) - 2)


def _levels(rows: Sequence[Row], loss: str) -> dict[RegularizerLevel, list[Row]]:
    """Group the rows of a loss by level, in order."""
    found = grouped([row for row in rows if loss_name(row) == loss], level_of)
    names = in_given_order((level.regularizer for level in found), ORDER)
    order = sorted(found, key=lambda it: (names.index(it.regularizer), it.lam or 0.0, it.weight))
    return {level: found[level] for level in order}


def _color(names: Sequence[str], name: str) -> str:
    return "0.25" if name == "none" else color_at(names.index(name) - 1)


def _marker(names: Sequence[str], name: str) -> str:
    return "*" if name == "none" else marker_at(names.index(name) - 1)
