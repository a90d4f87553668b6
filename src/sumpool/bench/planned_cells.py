"""The planned cells of a store: the union of the grids that were run into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sumpool.bench.cells import BenchCell
from sumpool.bench.report.scores import MethodKey
from sumpool.bench.store.store import BenchStore
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, write_atomic
from sumpool.system.locks import exclusive

GRID = "grid.json"


@dataclass(frozen=True)
class PlannedCell(MethodKey):
    """What is known of a cell before it is finished.

    Attributes:
        id: Its identity.
        name: What it is called in messages.
        group: Identity of its group.
        fold: Its fold.
        seed: Its seed.
    """

    id: str
    name: str
    group: str
    fold: int | None
    seed: int


def planned(cell: BenchCell) -> PlannedCell:
    """What is known of ``cell``."""
    member = cell.member
    return PlannedCell(*cell.key, cell.id, cell.name, cell.group, member.fold, member.seed)


def add_to_grid(store: BenchStore, cells: Sequence[BenchCell]) -> None:
    """Add ``cells`` to the plan of the store; several runners may do so at once."""
    with exclusive(store.folder / f".{GRID}.lock"):
        known = {cell.id: cell for cell in read_grid(store)}
        new = {cell.id: planned(cell) for cell in cells}
        if new.keys() <= known.keys():
            return
        text = json.dumps({"cells": [asdict(it) for it in {**known, **new}.values()]}, indent=1)
        write_atomic(store.folder / GRID, (text + "\n").encode())


def read_grid(store: BenchStore) -> list[PlannedCell]:
    """The planned cells of the store, in the order in which they were asked for.

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
