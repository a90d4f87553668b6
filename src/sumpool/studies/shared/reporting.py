"""Helpers for study sections: tables over seeds, differences by seed, rows to show."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sumpool.report.section import NOTHING, grouped, measured, over_seeds
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.rows import Row

#: Column heading of a metric, decimal places and scale factor.
Column = tuple[str, int, float]
Key = TypeVar("Key", bound=Hashable)

#: Retrieval scores and, on collages, the pooling weight on the foreground; all in %.
SCORES = {"map_at_r": "MAP@R", "precision_at_1": "P@1", "foreground_weight": "weight"}


def seeds_table(
    first: str, groups: Mapping[str, Sequence[Row]], columns: Mapping[str, Column], caption: str
) -> Table:
    """Tabulate one row per group and one column per available metric, averaged over seeds.

    ``first`` is the heading of the group column.
    """
    shown = measured([row for rows in groups.values() for row in rows], columns)
    lines = [[name, *averages(rows, shown)] for name, rows in groups.items()]
    return Table([first, *headings(shown)], lines, caption)


def headings(columns: Mapping[str, Column]) -> list[str]:
    """Return the headings of columns."""
    return [heading for heading, _, _ in columns.values()]


def averages(rows: Sequence[Row], columns: Mapping[str, Column]) -> list[str]:
    """Format each of the columns for a table row, averaged over seeds."""
    return [over_seeds(rows, metric, *look[1:]) for metric, look in columns.items()]


def cross_table(
    first: Sequence[str],
    lines: Mapping[tuple[str, ...], Hashable],
    columns: Mapping[str, tuple[Hashable, str]],
    cells: Mapping[Any, Sequence[Row]],
    caption: str,
) -> Table:
    """Tabulate metrics in percent by two properties of the cells, averaged over seeds.

    Args:
        first: Headings of the columns that label the rows.
        lines: Key of each row by its labels.
        columns: Key and metric of each column by its heading.
        cells: Stored rows by the keys of table row and column.
        caption: Caption of the table.
    """
    body = [
        [
            *names,
            *(
                over_seeds(cells.get((line, key), []), metric, 1, 100)
                for key, metric in columns.values()
            ),
        ]
        for names, line in lines.items()
    ]
    return Table([*first, *columns], body, caption)


def differences(rows: Iterable[Row], base: Iterable[Row]) -> list[float]:
    """Return the MAP@R of ``rows`` minus that of ``base``, for each seed that both have."""
    own, other = (
        {int(row.cell["seed"]): float(row.metrics["map_at_r"]) for row in part}
        for part in (rows, base)
    )
    return [own[seed] - other[seed] for seed in sorted(own) if seed in other]


def signed(values: Sequence[float]) -> str:
    """Format mean ± standard deviation in points, with a sign; a dash without values."""
    if not values:
        return NOTHING
    words = mean_and_spread(values, 1, 100)
    return words if words.startswith("-") else f"+{words}"


def by_label(rows: Sequence[Row], option: str, labels: Mapping[str, str]) -> dict[str, list[Row]]:
    """Group the rows by the label of an option of their cells, in the order of ``labels``."""
    found = grouped(rows, lambda row: str(row.cell[option]))
    return {label: found[value] for value, label in labels.items() if value in found}


def first_with_arrays(
    rows: Iterable[Row], key: Callable[[Row], Key], order: Iterable[Key]
) -> list[Row]:
    """Return the row of the first seed with stored arrays for each key that has one, in order."""
    stored = [row for row in rows if row.arrays is not None]
    stored.sort(key=lambda row: int(row.cell["seed"]))
    found = grouped(stored, key)
    return [found[it][0] for it in order if it in found]


def images_label(data: str) -> str:
    """Describe the data of a study whose training and test images share classes."""
    return {
        "glyphs": "collages of ten letters among digits",
        "CIFAR-10": "the classes of CIFAR-10",
        "CIFAR-100": "the super-classes of CIFAR-100",
        "stand-in": "drawn super-classes",
    }.get(data, data)
