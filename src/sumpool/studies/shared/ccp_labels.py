"""Words and tables that the studies of chance-constrained proxies share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sumpool.report.section import grouped, over_seeds, seeds_in_words, values
from sumpool.report.tables import Table
from sumpool.system.rows import Row

#: The methods, in the order they are told, with their names.
METHODS: Mapping[str, str] = {
    "base": "base loss",
    "one problem": "one problem",
    "alternating": "alternating problems",
}
#: What is told of the problems of a method: heading, digits and factor.
PROBLEMS: Mapping[str, tuple[str, int, float]] = {
    "problems": ("problems", 1, 1.0),
    "spread_first": ("spread, first", 3, 1.0),
    "spread_last": ("spread, last", 3, 1.0),
    "covering_radius_first": ("covering radius, first", 3, 1.0),
    "covering_radius_last": ("covering radius, last", 3, 1.0),
    "travel_first": ("travel, first", 3, 1.0),
    "travel_last": ("travel, last", 3, 1.0),
    "norm": ("length", 3, 1.0),
    "kept": ("kept [%]", 0, 100.0),
    "violation_rate": ("violations [%]", 1, 100.0),
    "violation_bound": ("their bound [%]", 1, 100.0),
}
#: How to read those that all rows of problems have.
_NOTE = (
    "Spread: mean distance between the converged proxies of a class. Covering radius: the largest "
    "distance from a pool image of a class to the nearest of its converged proxies, mean over "
    "classes. Violations: the share of pairs of an image and a proxy that are on the wrong side "
    "of the distance β, after the last problem; their bound is Markov's. First and last: of the "
    "problems of a training."
)
#: How to read what older rows lack.
_LATER = {
    "travel_last": " Travel: mean distance of the converged proxies from where they were drawn.",
    "norm": " Length: of the embeddings after the last problem, 1 where the ball is the sphere.",
    "kept": " Kept: the share of all steps that led to the solution of their problem.",
}


def note(rows: Sequence[Row]) -> str:
    """How to read what the rows have of :data:`PROBLEMS`."""
    return _NOTE + "".join(words for name, words in _LATER.items() if values(rows, name))


def methods_in(rows: Sequence[Row]) -> list[str]:
    """The methods that occur, in the order of :data:`METHODS`."""
    found = {str(row.cell["method"]) for row in rows}
    return [method for method in METHODS if method in found]


def grid_table(
    rows: Sequence[Row],
    down: tuple[str, Callable[[Row], float | str]],
    across: Callable[[Row], str],
    columns: Sequence[str],
    caption: str,
) -> Table:
    """MAP@R by two properties of the cells.

    Args:
        rows: The rows.
        down: Heading of the first column, and what a line stands for.
        across: What a column stands for.
        columns: The columns, in order.
        caption: What is tabulated; the seeds are added.
    """
    heading, line_of = down
    cells = grouped(rows, lambda row: (line_of(row), across(row)))
    lines = sorted({line_of(row) for row in rows}, key=lambda it: (isinstance(it, str), it))
    return Table(
        [heading, *columns],
        [
            [
                f"{line:g}" if isinstance(line, float) else line,
                *(over_seeds(cells.get((line, name), []), "map_at_r", 1, 100) for name in columns),
            ]
            for line in lines
        ],
        f"{caption}, {seeds_in_words(rows)}",
    )


def problem_columns(rows: Sequence[Row]) -> tuple[list[str], Callable[[Sequence[Row]], list[str]]]:
    """Headings of what any of the rows has of :data:`PROBLEMS`, and what a group of rows has."""
    found = {name: how for name, how in PROBLEMS.items() if values(rows, name)}
    return (
        [heading for heading, _, _ in found.values()],
        lambda own: [over_seeds(own, name, *how[1:]) for name, how in found.items()],
    )
