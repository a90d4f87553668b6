"""Report section on the Bayesian search for pull and proxies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from sumpool.report.labels import dataset_label, evaluated_on
from sumpool.report.section import Section, seed_count
from sumpool.report.tables import Table
from sumpool.studies.ccp_search.surface import fit_surface
from sumpool.studies.ccp_search.trials import trials_of
from sumpool.studies.shared.reporting import Column, averages, headings
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

#: Number of best trials in the table.
LISTED = 10
#: Grid points of the surface along each side.
_FINE = 60


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate the best trials."""
    trials = trials_of(rows)
    best = sorted(trials, key=lambda it: -it.value)[:LISTED]
    columns: dict[str, Column] = {"validation_map_at_r": ("validation MAP@R [%]", 1, 100.0)}
    if evaluated_on(rows[0].settings) == "test":
        columns["map_at_r"] = ("test MAP@R [%]", 1, 100.0)
    columns["problems"] = ("problems", 1, 1.0)
    lines = [
        [str(it.number + 1), f"{it.pull:.2g}", str(it.proxies), *averages(it.rows, columns)]
        for it in best
    ]
    seeds = seed_count(rows)
    each = "one seed each" if seeds == 1 else f"mean ± standard deviation over {seeds} seeds"
    header = ["trial", "λ", "proxies", *headings(columns)]
    caption = (
        f"The best {len(best)} of {len(trials)} trials by validation, "
        f"{dataset_label(rows[0].settings)}, {each}"
    )
    return [Table(header, lines, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: the best trials, and all trials on the surface of a Gaussian process."""
    return study_section(
        rows,
        title="Chance-constrained proxies: pull and number of proxies",
        question=(
            "λ pulls the weights of a problem to the solution of the last; proxies stand for a "
            "class. Which λ and how many proxies does a Bayesian search find on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={
            "Trials over pull and number of proxies, numbered in the order they were made, on "
            "the surface of a Gaussian process through their validation MAP@R.": draw(rows)
        },
        notes=[
            "The first trials are spread over the plane; then the sampler chooses each from the "
            "ones before. Few trials are far from the best points, so the surface there is a "
            "guess. It is a regression on all trials with a Matérn 5/2 kernel, its length scales "
            "and noise by likelihood."
        ],
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the trials on the surface of a Gaussian process, with its deviation beside it."""
    trials = trials_of(rows)
    where = np.array([[np.log10(it.pull), it.proxies] for it in trials])
    found = 100 * np.array([it.value for it in trials])
    low, high = where.min(0), where.max(0)
    edge = np.maximum(0.06 * (high - low), [0.3, 0.5])
    low, high = low - edge, high + edge
    sides = [np.linspace(low[it], high[it], _FINE) for it in (0, 1)]
    fine = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    surface = fit_surface((where - low) / (high - low), found, (fine - low) / (high - low))
    figure = Figure(figsize=(10.4, 3.9), layout="constrained")
    panels = (
        ("validation MAP@R [%]", surface.mean, "viridis"),
        ("its standard deviation [%]", surface.deviation, "Greys"),
    )
    for axes, (label, heights, colors) in zip(figure.subplots(1, 2), panels, strict=True):
        image = axes.pcolormesh(
            10 ** sides[0], sides[1], heights.reshape(_FINE, _FINE), cmap=colors, shading="nearest"
        )
        bar = figure.colorbar(image, ax=axes)
        bar.set_label(label, size=9)
        bar.ax.tick_params(labelsize=8)
        axes.set_xscale("log")
        axes.set_xlabel("pull λ", fontsize=9)
        axes.set_ylabel("proxies of a class", fontsize=9)
        axes.tick_params(labelsize=9)
        axes.yaxis.get_major_locator().set_params(integer=True)
        best = int(found.argmax())
        for place, trial in enumerate(trials):
            marker, size = ("*", 15) if place == best else ("o", 6)
            point = (trial.pull, trial.proxies)
            axes.plot(*point, marker, color="white", mec="black", markersize=size, mew=1.0)
            axes.annotate(
                str(trial.number + 1),
                point,
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=7.5,
                path_effects=[withStroke(linewidth=1.8, foreground="white")],
            )
    return figure
