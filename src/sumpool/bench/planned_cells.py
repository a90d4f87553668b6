"""Planned cells of a store: the union of all grids run into it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sumpool.bench.cells import BenchCell
from sumpool.bench.changed_options import changed_options
from sumpool.bench.report.scores import MethodKey
from sumpool.bench.store.store import BenchStore
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, write_atomic
from sumpool.system.locks import exclusive

GRID = "grid.json"


@dataclass(frozen=True)
class PlannedCell(MethodKey):
    """A cell of a grid, whether or not it has been run.

    Attributes:
        id: Identity of the cell.
        name: Name used in messages.
        group: Identity of its group.
        fold: Its fold.
        seed: Its seed.
        changed: Options that differ from protocol and method.
    """

    id: str
    name: str
    group: str
    fold: int | None
    seed: int
    changed: Mapping[str, str] = field(default_factory=dict, hash=False)


def planned(cells: Iterable[BenchCell]) -> list[PlannedCell]:
    """Convert ``cells`` to planned cells."""
    changed: dict[str, dict[str, str]] = {}
    found = []
    for it in cells:
        if it.group not in changed:
            changed[it.group] = changed_options(it.protocol, it.config)
        fold, seed = it.member.fold, it.member.seed
        found.append(PlannedCell(*it.key, it.id, it.name, it.group, fold, seed, changed[it.group]))
    return found


def add_to_grid(store: BenchStore, cells: Sequence[BenchCell]) -> None:
    """Add ``cells`` to the plan of the store; safe to call from several runners at once."""
    with exclusive(store.folder / f".{GRID}.lock"):
        known = {cell.id: cell for cell in read_grid(store)}
        new = planned(cell for cell in cells if cell.id not in known)
        if not new:
            return
        text = json.dumps({"cells": [asdict(it) for it in (*known.values(), *new)]}, indent=1)
        write_atomic(store.folder / GRID, (text + "\n").encode())


def read_grid(store: BenchStore) -> list[PlannedCell]:
    """Return the planned cells of the store, in the order in which they were added.

    Raises:
        StoreError: If the file cannot be read.
    """
    path = store.folder / GRID
    if not path.is_file():
        return []
    try:
        stored: Any = load_json(path)
        return [PlannedCell(**values) for values in stored["cells"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path} is not a list of cells ({error}): remove it, the next run writes it again"
        ) from error
