"""Figures, table and text on the proxy problems of a run with chance-constrained proxies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sumpool.report.html_page import Picture
from sumpool.report.plots import picture
from sumpool.report.run.curves import SIZE
from sumpool.report.run.files import Columns
from sumpool.report.section import NOTHING
from sumpool.report.style import COLORS, MARKERS, STYLES, style_axes
from sumpool.report.tables import Table

#: The figures: title, unit, factor, and the columns with their labels.
PANELS: tuple[tuple[str, str, float, Mapping[str, str]], ...] = (
    (
        "Proxies and what they cover",
        "distance",
        1.0,
        {"covering_radius": "covering radius", "spread": "spread of a class's proxies"},
    ),
    (
        "Pairs that violate the constraint",
        "%",
        100.0,
        {"violation_rate": "share of pairs", "violation_bound": "its Markov bound"},
    ),
)
#: Columns of the table: heading, factor and digits.
LISTED: Mapping[str, tuple[str, float, int]] = {
    "first_step": ("first step", 1.0, 0),
    "last_step": ("last step", 1.0, 0),
    "best_step": ("best step", 1.0, 0),
    "value": ("MAP@R [%]", 100.0, 1),
    "covering_radius": ("covering radius", 1.0, 3),
    "spread": ("proxy spread", 1.0, 3),
    "violation_rate": ("violations [%]", 100.0, 2),
    "violation_bound": ("bound [%]", 100.0, 2),
    "drift": ("drift ‖θ − θ_prev‖", 1.0, 3),
    "travel": ("proxies moved by", 1.0, 3),
    "norm": ("length of embeddings", 1.0, 3),
}


def problem_pictures(problems: Columns) -> list[Picture]:
    """Draw covering radius and spread, and violations with their bound, from problem to problem."""
    pictures = []
    for title, unit, scale, names in PANELS:
        found = {name: label for name, label in names.items() if name in problems}
        if found:
            figure = Figure(figsize=SIZE, layout="constrained")
            axes = figure.subplots()
            style_axes(axes, title, xlabel="problem", ylabel=unit)
            draw_problems(axes, problems, found, scale)
            alt = f"{' and '.join(found.values())} from problem to problem."
            pictures.append(picture(figure, alt))
    return pictures


def draw_problems(
    axes: Axes, problems: Columns, names: Mapping[str, str], scale: float = 1.0
) -> None:
    """Draw columns of problems, given by name with their labels, against the problem's number."""
    for place, (name, label) in enumerate(names.items()):
        axes.plot(
            problems["problem"],
            scale * problems[name],
            STYLES[place % len(STYLES)],
            color=COLORS[place],
            marker=MARKERS[place],
            markersize=4,
            label=label,
        )
    top = max(float(np.nanmax(scale * problems[name])) for name in names)
    axes.set_ylim(0, 1.25 * top or 1.0)  # room for the legend
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.legend(fontsize=8.5, frameon=False, loc="upper right", ncols=2)


def problem_table(problems: Columns) -> Table:
    """Tabulate the solved problems, one per row."""
    listed = {name: how for name, how in LISTED.items() if name in problems}
    rows = [
        [
            f"{number:.0f}",
            *(
                _number(scale * float(problems[name][line]), digits)
                for name, (_, scale, digits) in listed.items()
            ),
        ]
        for line, number in enumerate(problems["problem"])
    ]
    header = ["problem", *(heading for heading, _, _ in listed.values())]
    return Table(header, rows, "The proxy problems that were solved, one after the other")


def problem_note(problems: Columns) -> str:
    """Explain the figures and the table."""
    steps = problems["last_step"] - problems["first_step"]
    solved = "1 proxy problem was" if len(steps) == 1 else f"{len(steps)} proxy problems were"
    median = "" if len(steps) == 1 else " in the median"
    return (
        f"{solved} solved, of {np.median(steps):,.0f} steps{median}. "
        "A problem ends when validation gets no better. The next is pulled to its solution, its "
        "last step or with another ccp.solution its best, and its proxies are drawn anew. Covering "
        "radius: the largest distance from a pool image of a class to the nearest of its converged "
        "proxies, mean over classes. Spread: mean distance between those of a class; 0 where "
        "all have become one. Violations: pairs of an image and a proxy of its class that "
        "are too far apart, or of another class that are too near; their share is at most the "
        "bound, by Markov's inequality. Drift: how far the weights went in a problem."
    )


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if np.isfinite(value) else NOTHING
