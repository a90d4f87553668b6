"""Proxies drawn again for each problem versus proxies drawn once [thesis, fig. 3.7].

    sumpool study ccp-problems              (glyphs: 36 runs)
    sumpool study ccp-problems --data DIR   (CIFAR-100 or CUB: for a GPU)

On CUB, the first of three folds is held out and scored, as in the ablations of the thesis.

For four losses, compares the in-batch loss, the loss between a batch and proxies in a single
problem, and alternating problems; also reports the steps of each problem. Expected on CUB: proxies
alone explain little of the gain, alternation the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label, evaluated_on, in_given_order, loss_name
from sumpool.report.plots import color_at, marker_at
from sumpool.report.section import Section, grouped, seeds_label, values
from sumpool.report.style import mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.studies.grids.plots import images_of
from sumpool.studies.shared.ccp import ccp_study, with_method
from sumpool.studies.shared.ccp_labels import METHODS, PROBLEMS, methods_in, note
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.reporting import seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row, read_arrays
from sumpool.training import TrainConfig

LEVELS = tuple({"method": method} for method in METHODS)
_ORDER = ("C1", "C2", "MS", "TRIPLET")
_HATCHES = ("", "//", "..")


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set the method."""
    return with_method(config, cell["method"])


run = ccp_study("ccp-problems", LEVELS, change, LEVELS, losses=("c2", "c1", "ms", "triplet"))


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate MAP@R, P@1 and statistics of the problems by loss and method."""
    cells = _cells(rows)
    groups = {
        f"{loss}, {METHODS[method]}": cells[loss, method]
        for loss in _losses(rows)
        for method in methods_in(rows)
        if (loss, method) in cells
    }
    columns = {
        "map_at_r": ("MAP@R [%]", 1, 100.0),
        "precision_at_1": ("P@1 [%]", 1, 100.0),
        "best_step": ("best step", 0, 1.0),
        **PROBLEMS,
    }
    caption = f"{images_of(rows)}, {seeds_label(rows)}"
    return [seeds_table("training", groups, columns, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables, MAP@R of each loss and method, and steps of problems."""
    figures = {
        "MAP@R of each loss: inside batches, with proxies that are drawn once, and with "
        "alternating problems; whiskers for the standard deviation over seeds.": draw_scores(rows)
    }
    solved = [row for row in rows if row.cell["method"] == "alternating" and row.arrays is not None]
    if solved:
        figures[
            "Steps of each problem of the alternating runs, one dot per problem, a bar for the "
            "median, by loss."
        ] = draw_steps(folder, solved)
    return study_section(
        rows,
        title="Chance-constrained proxies: alternation against a single problem",
        question=(
            "Is it the proxies that help, or that they are drawn again? The loss inside batches, "
            "between batches and proxies that are drawn once, and between batches and proxies that "
            f"are drawn again whenever validation stands still, on "
            f"{dataset_label(rows[0].settings)}."
        ),
        tables=tables(rows),
        figures=figures,
        notes=[note(rows)],
    )


def draw_scores(rows: Sequence[Row]) -> Figure:
    """Draw MAP@R as bars, grouped by loss."""
    losses, methods, cells = _losses(rows), methods_in(rows), _cells(rows)
    figure = Figure(figsize=(max(6.0, 1.6 + 1.5 * len(losses)), 3.4), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "", ylabel=f"{evaluated_on(rows[0].settings)} MAP@R [%]")
    width = 0.8 / len(methods)
    for place, method in enumerate(methods):
        for number, loss in enumerate(losses):
            found = values(cells.get((loss, method), []), "map_at_r")
            if not found:
                continue
            mean, deviation = mean_and_deviation(found)
            axes.bar(
                number + (place - (len(methods) - 1) / 2) * width,
                mean,
                0.92 * width,
                yerr=deviation or None,
                color=color_at(place),
                hatch=_HATCHES[place],
                edgecolor="white",
                capsize=3,
                label=METHODS[method] if number == 0 else None,
            )
    axes.set_xticks(range(len(losses)), losses)
    axes.set_ylim(0, 1.22 * axes.get_ylim()[1])
    axes.legend(fontsize=8.5, frameon=False, ncols=len(methods), loc="upper center")
    return figure


def draw_steps(folder: Path, rows: Sequence[Row]) -> Figure:
    """Draw the steps of every problem by loss, with their median; arrays are in ``folder``."""
    losses = _losses(rows)
    figure = Figure(figsize=(max(4.0, 1.6 + 1.2 * len(losses)), 3.4), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "Steps of a problem", ylabel="steps")
    for place, loss in enumerate(losses):
        own = [read_arrays(folder, row) for row in rows if loss_name(row) == loss]
        steps = np.concatenate([arrays["problem_steps"] for arrays in own])
        across = place + np.random.default_rng(0).uniform(-0.22, 0.22, len(steps))
        color, marker = color_at(place), marker_at(place)
        axes.plot(across, steps, marker, color=color, alpha=0.55, markersize=5, mew=0)
        median = float(np.median(steps))
        axes.hlines(median, place - 0.32, place + 0.32, color="0.15", lw=1.8)
        beside = (place + 0.34, median)
        axes.annotate(f"{median:.0f}", beside, ha="left", va="center", fontsize=8.5, color="0.15")
    axes.set_xticks(range(len(losses)), losses)
    axes.set_xlim(-0.6, len(losses) - 0.4)
    axes.set_ylim(bottom=0)
    return figure


def _cells(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    return grouped(rows, lambda row: (loss_name(row), str(row.cell["method"])))


def _losses(rows: Sequence[Row]) -> list[str]:
    return in_given_order((loss_name(row) for row in rows), _ORDER)
