"""Groups of finished cells: the runs that a protocol combines into one result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sumpool.bench.cells import group_of
from sumpool.bench.changed_options import (
    changed_options,
    is_used,
    options_text,
    with_short_paths,
    without_folders,
)
from sumpool.bench.planned_cells import PlannedCell
from sumpool.bench.store.rows import BenchRow
from sumpool.protocols import PROTOCOLS, Member, Protocol
from sumpool.training.config import TrainConfig, with_options


@dataclass(frozen=True)
class Group:
    """Cells that differ only in fold and seed.

    Attributes:
        id: Identity of the group.
        rows: The finished cells, at least one.
        seeds: Requested number of runs per fold.
        config: Configuration of the first row.
        changed: Options that differ from protocol and method; mostly none.
        settings: These options as text, with short paths.
    """

    id: str
    rows: tuple[BenchRow, ...]
    seeds: int
    config: TrainConfig
    changed: Mapping[str, str]
    settings: str

    @property
    def protocol(self) -> Protocol:
        """Protocol of the runs."""
        return PROTOCOLS[self.rows[0].protocol]

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Protocol, data set, network, loss and method, as in scores."""
        return self.rows[0].key

    @property
    def name(self) -> str:
        """Name used in messages."""
        return " ".join(self.key) + (f" ({self.settings})" if self.settings else "")

    @cached_property
    def members(self) -> dict[Member, BenchRow]:
        """Finished runs by fold and seed."""
        return {Member(row.fold, row.seed): row for row in self.rows}

    @property
    def wanted(self) -> list[Member]:
        """All runs needed for a result."""
        return self.protocol.members(self.seeds)

    @property
    def missing(self) -> list[Member]:
        """Needed runs that are not finished."""
        return [member for member in self.wanted if member not in self.members]

    def is_trained_as(self, other: Group) -> bool:
        """Whether both have the same options, ignoring those that only one of them uses."""
        ours, theirs = (
            {
                name: value
                for name, value in without_folders(group.changed).items()
                if is_used(name, self.config) and is_used(name, other.config)
            }
            for group in (self, other)
        )
        return ours == theirs

    @cached_property
    def digest(self) -> str:
        """Digest of the runs; it changes whenever they do."""
        runs = sorted((row.id, row.started, row.attempts) for row in self.rows)
        return hashlib.sha256(json.dumps([runs, self.seeds]).encode()).hexdigest()[:16]


def find_groups(rows: Iterable[BenchRow], planned: Sequence[PlannedCell]) -> list[Group]:
    """Group ``rows``; each group needs as many seeds as are planned or present."""
    found: dict[str, list[BenchRow]] = {}
    for row in rows:
        group = group_of(row.protocol, row.data_set, row.options)
        found.setdefault(group, []).append(row)
    asked: dict[str, int] = {}
    for cell in planned:
        asked[cell.group] = max(asked.get(cell.group, 0), cell.seed + 1)
    configs = [with_options(TrainConfig(), there[0].options) for there in found.values()]
    changed = [
        changed_options(there[0].protocol, config)
        for there, config in zip(found.values(), configs, strict=True)
    ]
    short = with_short_paths(changed)
    return [
        Group(
            id,
            tuple(there),
            max(asked.get(id, 0), *(row.seed + 1 for row in there), 1),
            configs[place],
            changed[place],
            options_text(short[place]),
        )
        for place, (id, there) in enumerate(found.items())
    ]
