"""Trials of the search, from stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sumpool.report.section import grouped, values
from sumpool.system.rows import Row


class Trial(NamedTuple):
    """One point of the search, with the rows of all seeds."""

    number: int
    pull: float
    proxies: int
    rows: list[Row]

    @property
    def value(self) -> float:
        """Validation MAP@R, mean over seeds."""
        found = values(self.rows, "validation_map_at_r")
        return sum(found) / len(found)


def trials_of(rows: Sequence[Row]) -> list[Trial]:
    """Group rows into trials, in order."""
    found = grouped(rows, lambda row: int(row.cell["trial"]))
    return [
        Trial(number, float(own[0].cell["pull"]), int(own[0].cell["proxies"]), own)
        for number, own in sorted(found.items())
    ]
