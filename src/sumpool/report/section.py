"""Sections of studies, and helpers shared by all studies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sumpool.report.html_page import Picture
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.rows import Row

#: Placeholder for missing values.
NOTHING = "–"
#: Data that is drawn or comes with a package, and needs no folder.
_DRAWN = (None, "stand-in", "glyphs", "digits")

Key = TypeVar("Key", bound=Hashable)
Column = TypeVar("Column")


@dataclass(frozen=True)
class Section:
    """The section of a study on a page.

    Attributes:
        title: Heading.
        question: What the study asks.
        tables: The numbers, averaged over seeds.
        pictures: The figures.
        notes: How to read the results, and under which conditions they hold.
        provenance: Command, seeds and versions.
    """

    title: str
    question: str
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    notes: Sequence[str]
    provenance: str


def grouped(rows: Sequence[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Group rows by key; keys and rows keep their order."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def values(rows: Sequence[Row], name: str) -> list[float]:
    """Return a metric of the rows that have it."""
    return [float(row.metrics[name]) for row in rows if name in row.metrics]


def measured(rows: Sequence[Row], columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns, by the name of their metric, that any of the rows has a value for."""
    return {
        name: column for name, column in columns.items() if any(name in row.metrics for row in rows)
    }


def over_seeds(
    rows: Sequence[Row], name: str, digits: int, scale: float = 1.0, of: int | None = None
) -> str:
    """Format mean ± standard deviation over the rows that have the metric; a dash if none has.

    Args:
        rows: Rows of one table cell, one per seed.
        name: Name of the metric.
        digits: Digits after the decimal point.
        scale: Factor applied to the metric.
        of: Expected number of seeds; if there are fewer, their number follows in parentheses.
    """
    found = values(rows, name)
    if not found:
        return NOTHING
    count = f" ({len(found)})" if of is not None and len(found) < of else ""
    return mean_and_spread(found, digits, scale) + count


def seeds_label(rows: Sequence[Row]) -> str:
    """Describe how many seeds a table averages over."""
    count = seed_count(rows)
    return "one seed" if count == 1 else f"mean ± standard deviation over {count} seeds"


def provenance(rows: Sequence[Row]) -> str:
    """Return the command that produces these rows, and the versions it ran with."""
    versions = ", ".join(f"{name} {version}" for name, version in rows[-1].versions.items())
    data = " --data DIR" if rows[0].settings.get("data") not in _DRAWN else ""
    return f"sumpool study {rows[0].study} --seeds {seed_count(rows)}{data}; {versions}"


def seed_count(rows: Sequence[Row]) -> int:
    """Return the number of different seeds of the rows."""
    return len({row.cell["seed"] for row in rows})
