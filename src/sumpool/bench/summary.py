"""Summary of a grid, updated while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from sumpool.bench.cells import BenchCell
from sumpool.bench.store.store import BenchFailure


@dataclass(frozen=True)
class Summary:
    """Outcome of the cells of a grid.

    Attributes:
        done: Cells that this runner finished.
        failed: Cells that failed in every attempt, with the last failure.
        elsewhere: Cells that had a row already, or that another runner finished meanwhile.
    """

    done: list[BenchCell] = field(default_factory=list)
    failed: list[tuple[BenchCell, BenchFailure]] = field(default_factory=list)
    elsewhere: list[BenchCell] = field(default_factory=list)
