"""Training curves: losses, validation, learning rate and speed by step."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sumpool.report.html_page import Picture
from sumpool.report.plots import color_at, marker_at, picture
from sumpool.report.run.files import Columns, Run
from sumpool.report.run.labels import SCORES
from sumpool.report.style import COLORS, MARKERS, STYLES, plain_text, style_axes

LOSSES = {
    "loss": "loss",
    "base_loss": "base loss",
    "zero_shot_loss": "zero-shot loss",
    "center_loss": "center regularizer",
}
SIZE = (4.6, 3.0)
#: Maximum number of problem numbers above a curve, so that they do not overlap.
NUMBERED = 14


def run_pictures(run: Run) -> list[Picture]:
    """Draw the training curves of a run, finished or not."""
    pictures = []
    components = {name: label for name, label in LOSSES.items() if name in run.log}
    if len(components) == 2:  # a single part is the loss itself
        components.pop("base_loss", None)
    if components:
        figure, axes = _axes("Loss", "mean between log lines")
        _curves(axes, run.log, components)
        pictures.append(picture(figure, f"{_list(components)} by training step."))
    scores = {name: label for name, label in SCORES.items() if name in run.validation}
    if scores:
        pictures.append(_validation(run, scores))
    if "learning_rate" in run.log:
        figure, axes = _axes("Learning rate", "")
        rate = run.log["learning_rate"]
        axes.plot(run.log["step"], rate, color=COLORS[0], drawstyle="steps-post", **_dots(rate))
        if (rate > 0).all() and rate.max() > 10 * rate.min():
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.1 * float(np.nanmax(rate)) or None)
        pictures.append(picture(figure, "The learning rate by training step."))
    if "images_per_second" in run.log:
        figure, axes = _axes("Speed", "images per second")
        speed = run.log["images_per_second"]
        axes.plot(run.log["step"], speed, color=COLORS[0], **_dots(speed))
        axes.set_ylim(0, 1.1 * float(np.nanmax(speed)))
        pictures.append(picture(figure, "Images per second by training step."))
    return pictures


def comparison_pictures(groups: Mapping[str, Sequence[Run]]) -> list[Picture]:
    """Draw curves by group: each run faint, and their mean over the steps all have bold."""
    tested = any(run.selection == "test" for runs in groups.values() for run in runs)
    on = "Validation or test" if tested else "Validation"
    panels = [(f"{on} {label}", "%", 100.0, name) for name, label in SCORES.items()]
    panels.append(("Base loss", "mean between log lines", 1.0, "base_loss"))
    pictures = []
    for title, unit, scale, name in panels:
        figure, axes = _axes(title, unit)
        drawn = False
        for position, (group, runs) in enumerate(groups.items()):
            tables = [run.validation if name in SCORES else _losses(run) for run in runs]
            tables = [columns for columns in tables if name in columns]
            drawn |= bool(tables)
            _group(axes, tables, name, scale, group, position)
        if drawn:
            axes.legend(fontsize=8.5, frameon=False)
            alt = f"{title} by training step for {_list(groups)}: every run and the mean of each."
            pictures.append(picture(figure, alt))
    return pictures


def score_picture(label: str, source: str, groups: Mapping[str, Sequence[float]]) -> Picture:
    """Draw one dot per run, a bar for the mean and a whisker for the standard deviation.

    ``groups`` contains the scores of the runs by group, ``source`` is the evaluation they are from.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    style_axes(axes, plain_text(f"{label}, {source}"), ylabel="%")
    for position, values in enumerate(groups.values()):
        if not values:
            continue
        points = 100 * np.asarray(values)
        mean, several = points.mean(), len(points) > 1
        color, marker = color_at(position), marker_at(position)
        spots = position + several * np.linspace(-0.12, 0.12, len(points))
        axes.plot(spots, points, marker, color=color, alpha=0.75, markersize=6)
        axes.hlines(mean, position - 0.3, position + 0.3, color=color, lw=2)
        if several:
            spread = points.std(ddof=1)
            axes.errorbar(position + 0.3, mean, spread, color=color, capsize=4, lw=1.2)
        axes.annotate(f"{mean:.1f}", (position - 0.34, mean), ha="right", va="center", size=9)
    width = max(8, 48 // max(1, len(groups)))  # letters that fit below a group
    axes.set_xticks(range(len(groups)), [plain_text(textwrap.fill(it, width)) for it in groups])
    axes.set_xlim(-0.8, len(groups) - 0.5)
    alt = f"{label} of every run of {_list(groups)}, with mean and standard deviation."
    return picture(figure, alt)


def _validation(run: Run, scores: Mapping[str, str]) -> Picture:
    tested = run.selection == "test"
    title = "Test set, which the model is selected on" if tested else "Validation"
    figure, axes = _axes(title, "%")
    percent = {name: 100 * column for name, column in run.validation.items()}
    _curves(axes, {**percent, "step": run.validation["step"]}, scores, markers=True)
    best = run.best_step
    if best is not None:
        axes.axvline(best, color="0.45", lw=1, ls=":")
        axes.plot([], [], color="0.45", lw=1, ls=":", label=f"best: step {best:,}")
        axes.legend(fontsize=8.5, frameon=False)
    count = len(run.validation["step"])
    if count == 1:
        axes.set_title(f"{title}, made once so far", fontsize=10.5)
    classes = "test classes, which the model is selected on," if tested else "validation classes"
    alt = f"{_list(scores)} on the {classes} by training step, the best step marked."
    if run.problems:
        _mark_problems(axes, run.problems)
        alt += " Bands, with numbers above them, are the proxy problems that were solved."
    return picture(figure, alt)


def _mark_problems(axes: Axes, problems: Columns) -> None:
    """Draw a band from the first to the last step of each problem, every other one darker."""
    columns = (problems[name] for name in ("problem", "first_step", "last_step"))
    bands = list(zip(*columns, strict=True))
    for place, (_, first, last) in enumerate(bands):
        axes.axvspan(first, last, color="0.87" if place % 2 else "0.95", lw=0, zorder=0)
    low, high = axes.get_xlim()
    apart, shown = (high - low) / NUMBERED, -math.inf
    for number, first, last in bands:
        middle = (first + last) / 2
        if middle - shown >= apart:
            shown = middle
            axes.annotate(
                f"{number:.0f}",
                (middle, 1),
                xycoords=axes.get_xaxis_transform(),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                color="0.35",
            )
    axes.set_title(axes.get_title(), fontsize=10.5, pad=14)


def _axes(title: str, unit: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    style_axes(axes, title, xlabel="step", ylabel=unit)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    return figure, axes


def _curves(
    axes: Axes,
    columns: Mapping[str, NDArray[np.float64]],
    names: Mapping[str, str],
    markers: bool = False,
) -> None:
    for position, (name, label) in enumerate(names.items()):
        marks = {"marker": MARKERS[position], "markersize": 4} if markers else {}
        axes.plot(
            columns["step"],
            columns[name],
            STYLES[position % len(STYLES)],
            color=COLORS[position],
            label=label,
            **(marks or _dots(columns[name])),
        )
    if len(names) > 1:
        axes.legend(fontsize=8.5, frameon=False)


def _losses(run: Run) -> Columns:
    # A loss without parts is its base loss.
    return {"base_loss": run.log["loss"], **run.log} if "loss" in run.log else run.log


def _group(
    axes: Axes,
    tables: Sequence[Mapping[str, NDArray[np.float64]]],
    name: str,
    scale: float,
    group: str,
    position: int,
) -> None:
    color, style = color_at(position), STYLES[position % len(STYLES)]
    for columns in tables:
        values = scale * columns[name]
        axes.plot(columns["step"], values, style, color=color, alpha=0.3, lw=1, **_dots(values))
    if not tables:
        return
    steps = tables[0]["step"]
    for columns in tables[1:]:
        steps = np.intersect1d(steps, columns["step"])
    kept = [scale * columns[name][np.isin(columns["step"], steps)] for columns in tables]
    mean = np.mean(kept, axis=0)
    count = f" (mean of {len(tables)})" if len(tables) > 1 else ""
    axes.plot(steps, mean, style, color=color, lw=2, label=plain_text(group + count), **_dots(mean))


def _dots(values: NDArray[np.float64]) -> dict[str, Any]:
    # A line of one point is invisible.
    return {"marker": "o", "markersize": 4} if len(values) < 3 else {}


def _list(names: Mapping[str, object]) -> str:
    labels = [str(label) if isinstance(label, str) else name for name, label in names.items()]
    return " and ".join([", ".join(labels[:-1]), labels[-1]]) if len(labels) > 1 else labels[0]
