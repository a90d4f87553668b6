"""The study of alternating problems against a single one on a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.labels import conditions, dataset_label, in_given_order, loss_name
from sumpool.report.section import (
    Section,
    grouped,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
    values,
)
from sumpool.report.style import COLORS, MARKERS, mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.studies.shared.ccp_labels import METHODS, methods_in, note, problem_columns
from sumpool.system.rows import Row, read_arrays

_ORDER = ("C1", "C2", "MS", "TRIPLET")
_HATCHES = ("", "//", "..")


def tables(rows: list[Row]) -> list[Table]:
    """MAP@R and P@1 of every loss and method, and what the problems were like."""
    cells = grouped(rows, lambda row: (loss_name(row), str(row.cell["method"])))
    headings, told = problem_columns(rows)
    lines = [
        [
            f"{loss}, {METHODS[method]}",
            over_seeds(own, "map_at_r", 1, 100),
            over_seeds(own, "precision_at_1", 1, 100),
            over_seeds(own, "best_step", 0),
            *told(own),
        ]
        for loss in _losses(rows)
        for method in methods_in(rows)
        if (own := cells.get((loss, method), []))
    ]
    caption = f"Test images of {dataset_label(rows[0].settings)}, {seeds_in_words(rows)}"
    header = ["training", "MAP@R [%]", "P@1 [%]", "best step", *headings]
    return [Table(header, lines, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    pictures = [
        render_png(
            partial(draw_scores, rows),
            "Test MAP@R of each loss: inside batches, with proxies that are drawn once, and with "
            "alternating problems; whiskers for the standard deviation over seeds.",
        )
    ]
    if _solved(rows):
        pictures.append(
            render_png(
                partial(draw_steps, folder, rows),
                "Steps of each problem of the alternating trainings, one dot a problem, a bar for "
                "the median, by loss.",
            )
        )
    return Section(
        title="Chance-constrained proxies: alternation against a single problem",
        question=(
            "Is it the proxies that help, or that they are drawn again? The loss inside batches, "
            "between batches and proxies that are drawn once, and between batches and proxies that "
            f"are drawn again whenever validation stands still, on "
            f"{dataset_label(rows[0].settings)}."
        ),
        tables=tables(rows),
        pictures=pictures,
        notes=[note(rows), *conditions(rows[0].settings)],
        provenance=provenance(rows),
    )


def draw_scores(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw test MAP@R as bars, methods side by side for each loss.

    Args:
        rows: Rows of the study.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    losses, methods = _losses(rows), methods_in(rows)
    figure = Figure(figsize=(max(6.0, 1.6 + 1.5 * len(losses)), 3.4), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "", ylabel="test MAP@R [%]")
    cells = grouped(rows, lambda row: (loss_name(row), str(row.cell["method"])))
    width = 0.8 / len(methods)
    for place, method in enumerate(methods):
        for number, loss in enumerate(losses):
            found = values(cells.get((loss, method), []), "map_at_r")
            if found:
                mean, deviation = mean_and_deviation(found)
                axes.bar(
                    number + (place - (len(methods) - 1) / 2) * width,
                    mean,
                    0.92 * width,
                    yerr=deviation or None,
                    color=COLORS[place],
                    hatch=_HATCHES[place],
                    edgecolor="white",
                    capsize=3,
                    label=METHODS[method] if number == 0 else None,
                )
    axes.set_xticks(range(len(losses)), losses)
    axes.set_ylim(0, 1.22 * axes.get_ylim()[1])
    axes.legend(fontsize=8.5, frameon=False, ncols=len(methods), loc="upper center")
    figure.savefig(out, dpi=140)


def draw_steps(folder: Path, rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw the steps of every problem of the alternating trainings, by loss.

    Args:
        folder: Where the arrays are.
        rows: Rows of the study.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    solved = _solved(rows)
    losses = _losses(solved)
    figure = Figure(figsize=(max(4.0, 1.6 + 1.2 * len(losses)), 3.4), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "Steps of a problem", ylabel="steps")
    for place, loss in enumerate(losses):
        own = [row for row in solved if loss_name(row) == loss]
        _dots(axes, place, np.concatenate([read_arrays(folder, it)["problem_steps"] for it in own]))
    axes.set_xticks(range(len(losses)), losses)
    axes.set_xlim(-0.6, len(losses) - 0.4)
    axes.set_ylim(bottom=0)
    figure.savefig(out, dpi=140)


def _dots(axes: Axes, place: int, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    beside = np.random.default_rng(0).uniform(-0.22, 0.22, len(steps))
    color, marker = COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)]
    axes.plot(place + beside, steps, marker, color=color, alpha=0.55, markersize=5, mew=0)
    median = float(np.median(steps))
    axes.hlines(median, place - 0.32, place + 0.32, color="0.15", lw=1.8)
    axes.annotate(
        f"{median:.0f}", (place + 0.34, median), ha="left", va="center", fontsize=8.5, color="0.15"
    )


def _losses(rows: Sequence[Row]) -> list[str]:
    return in_given_order((loss_name(row) for row in rows), _ORDER)


def _solved(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.cell["method"] == "alternating" and row.arrays is not None]
