"""A study on a page, and what all studies share there."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from sumpool.report.html_page import Picture
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.rows import Row

#: Stands where there is nothing to show.
NOTHING = "–"
#: Data that is drawn, or comes with a package: no folder is to be given.
_DRAWN = (None, "stand-in", "glyphs", "digits")

Key = TypeVar("Key", bound=Hashable)
Column = TypeVar("Column")


@dataclass(frozen=True)
class Section:
    """One study on a page.

    Attributes:
        title: Heading.
        question: What the study asks.
        tables: The numbers, averaged over seeds.
        pictures: The figures.
        notes: How to read them, and under which conditions they hold.
        provenance: Command, seeds, versions and time.
    """

    title: str
    question: str
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    notes: Sequence[str]
    provenance: str


def render_png(draw: Callable[[BinaryIO], None], alt: str) -> Picture:
    """The figure that ``draw`` writes to a file, with its text for those who do not see it."""
    buffer = io.BytesIO()
    draw(buffer)
    return Picture(buffer.getvalue(), alt)


def grouped(rows: Sequence[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """The rows by their key, keys and rows in the order they come."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def values(rows: Sequence[Row], name: str) -> list[float]:
    """The metric of those rows that have it."""
    return [float(row.metrics[name]) for row in rows if name in row.metrics]


def measured(rows: Sequence[Row], columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, by the name of their metric, that any of the rows has something for."""
    return {
        name: column for name, column in columns.items() if any(name in row.metrics for row in rows)
    }


def over_seeds(
    rows: Sequence[Row], name: str, digits: int, scale: float = 1.0, of: int | None = None
) -> str:
    """Mean ± standard deviation of a metric over the rows that have it, a dash if none has.

    Args:
        rows: Those of one cell of a table, one row per seed.
        name: The metric.
        digits: Digits after the point.
        scale: Factor on it.
        of: Seeds that there should be; if there are fewer, their number follows in parentheses.
    """
    found = values(rows, name)
    if not found:
        return NOTHING
    count = f" ({len(found)})" if of is not None and len(found) < of else ""
    return mean_and_spread(found, digits, scale) + count


def seeds_in_words(rows: Sequence[Row]) -> str:
    """Over how many seeds a table averages."""
    count = seed_count(rows)
    return "one seed" if count == 1 else f"mean ± standard deviation over {count} seeds"


def provenance(rows: Sequence[Row]) -> str:
    """The command that produces these rows, and the versions it ran with."""
    versions = ", ".join(f"{name} {version}" for name, version in rows[-1].versions.items())
    data = " --data DIR" if rows[0].settings.get("data") not in _DRAWN else ""
    return f"sumpool study {rows[0].study} --seeds {seed_count(rows)}{data}; {versions}"


def seed_count(rows: Sequence[Row]) -> int:
    """How many seeds there are among the rows."""
    return len({row.cell["seed"] for row in rows})
