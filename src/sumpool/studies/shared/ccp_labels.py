"""Labels of methods and problems shared by the studies of chance-constrained proxies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sumpool.report.section import values
from sumpool.studies.shared.reporting import Column, by_label, first_with_arrays
from sumpool.system.rows import Row

#: Labels of the methods, in order: the in-batch loss, proxies drawn once, and proxies drawn again
#: for each problem.
METHODS: Mapping[str, str] = {
    "base": "base loss",
    "one problem": "one problem",
    "alternating": "alternating problems",
}
#: Columns that describe the problems of a run.
PROBLEMS: Mapping[str, Column] = {
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
#: Explains the columns present in all rows with problems.
_NOTE = (
    "Spread: mean distance between the converged proxies of a class. Covering radius: the largest "
    "distance from a pool image of a class to the nearest of its converged proxies, mean over "
    "classes. Violations: the share of pairs of an image and a proxy that are on the wrong side "
    "of the distance β, after the last problem; their bound is Markov's. First and last: of the "
    "problems of a run."
)
#: Explains the columns that older rows lack.
_LATER = {
    "travel_last": " Travel: mean distance of the converged proxies from where they were drawn.",
    "norm": " Length: of the embeddings after the last problem, 1 where the ball is the sphere.",
    "kept": " Kept: the share of all steps that led to the solution of their problem.",
}


def note(rows: Sequence[Row]) -> str:
    """Return a note that explains the :data:`PROBLEMS` columns present in ``rows``."""
    return _NOTE + "".join(words for name, words in _LATER.items() if values(rows, name))


def methods_in(rows: Sequence[Row]) -> list[str]:
    """Return the methods in ``rows``, in the order of :data:`METHODS`."""
    found = {str(row.cell["method"]) for row in rows}
    return [method for method in METHODS if method in found]


def by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group the rows by method label, in the order of :data:`METHODS`."""
    return by_label(rows, "method", METHODS)


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the first seed with arrays of each method, in the order of :data:`METHODS`."""
    return first_with_arrays(rows, lambda row: str(row.cell["method"]), METHODS)
