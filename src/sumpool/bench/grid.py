"""Expand lists of options into the cells of a grid, and refuse what cannot be trained."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sumpool.bench.cells import MEMORY_LOSSES, BenchCell, method_label
from sumpool.bench.datasets import DataSource
from sumpool.pooling import POOLINGS, pooling_class
from sumpool.protocols import PROTOCOLS, Member, Protocol
from sumpool.training.config import ConfigError, TrainConfig, with_options


class GridError(ConfigError):
    """A grid cannot be run; the message names the cell and the reason."""


@dataclass(frozen=True)
class Grid:
    """A grid of runs: every combination of the listed values.

    Attributes:
        protocol: A key of ``sumpool.protocols.PROTOCOLS``.
        data: The data sets.
        losses: Keys of ``sumpool.losses.LOSSES``.
        poolings: Keys of ``sumpool.pooling.POOLINGS``.
        backbones: Names of networks.
        zero_shot: With the zero-shot loss (True), without it (False), or the default of the pooling
            (None).
        ccp: With or without chance-constrained proxies.
        xbm: With or without cross-batch memory; for the losses c1 and c2.
        center_regs: Regularizers of class centers; None for no regularizer.
        folds: Folds of the protocol to run; None for all.
        seeds: Number of seeds; None for the number set by the protocol.
        options: Further options of `sumpool train`, by dotted name, for all cells.
    """

    protocol: str
    data: Sequence[DataSource]
    losses: Sequence[str] = ("c2",)
    poolings: Sequence[str] = ("gap", "gsp")
    backbones: Sequence[str] = (TrainConfig.backbone,)
    zero_shot: Sequence[bool | None] = (None,)
    ccp: Sequence[bool] = (False,)
    xbm: Sequence[bool] = (False,)
    center_regs: Sequence[str | None] = (None,)
    folds: Sequence[int] | None = None
    seeds: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def expand(grid: Grid) -> list[BenchCell]:
    """Return the cells of ``grid``, with complete configurations.

    No data is opened and no model is built; see :func:`sumpool.bench.preflight.check_cells`.

    Raises:
        GridError: If a name is unknown, options contradict each other, or two cells are the same
            run. The message names the cell.
    """
    if grid.protocol not in PROTOCOLS:
        raise GridError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {grid.protocol!r}")
    protocol = PROTOCOLS[grid.protocol]
    names = [source.name for source in grid.data]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise GridError(f"two data sets are called {twice[0]}: name them, with NAME=PATH")
    members = _members(grid, protocol)
    found: dict[str, BenchCell] = {}
    for source, config, wanted in _combinations(grid):
        for member in members:
            cell = _cell(grid, protocol, source, config, wanted, member)
            if cell.id in found:
                raise GridError(
                    f"{cell.name} is the same run as {found[cell.id].name}: it is asked for twice"
                )
            found[cell.id] = cell
    return list(found.values())


def _members(grid: Grid, protocol: Protocol) -> list[Member]:
    members = protocol.members(grid.seeds)
    if grid.folds is None:
        return members
    known = {member.fold for member in members}
    for fold in grid.folds:
        if fold not in known:
            there = ", ".join(str(it) for it in sorted(it for it in known if it is not None))
            accepted = f"one of {there}" if there else "left out, there is none"
            raise GridError(f"fold must be {accepted} in the protocol {grid.protocol}, got {fold}")
    return [member for member in members if member.fold in grid.folds]


def _combinations(grid: Grid) -> Iterator[tuple[DataSource, TrainConfig, bool | None]]:
    for source, backbone, loss, xbm, ccp, pool, zero_shot, center_reg in itertools.product(
        grid.data,
        grid.backbones,
        grid.losses,
        grid.xbm,
        grid.ccp,
        grid.poolings,
        grid.zero_shot,
        grid.center_regs,
    ):
        chosen = {
            "data": None if source.path is None else str(source.path),
            "format": source.format,
            "backbone": backbone,
            "loss": _loss(loss, xbm),
            "pool": pool,
            "ccp.enabled": ccp,
            "center_reg": center_reg,
        }
        if taken := sorted({*chosen, "fold", "folds", "seed", "out"} & grid.options.keys()):
            raise GridError(f"{taken[0]} is set by the grid itself and cannot be set for all cells")
        # Galleries of every run would take up most of the disk space of a grid.
        yield (
            source,
            with_options(TrainConfig(), {"gallery": False, **grid.options, **chosen}),
            zero_shot,
        )


def _loss(loss: str, xbm: bool) -> str:
    if not xbm:
        return loss
    if loss not in MEMORY_LOSSES:
        raise GridError(
            f"cross-batch memory (xbm) needs a loss out of {', '.join(MEMORY_LOSSES)}, got {loss}"
        )
    return MEMORY_LOSSES[loss]


def _cell(
    grid: Grid,
    protocol: Protocol,
    source: DataSource,
    config: TrainConfig,
    zero_shot: bool | None,
    member: Member,
) -> BenchCell:
    rough = BenchCell(grid.protocol, source.name, method_label(config), member, config)
    try:
        if config.hardware.devices * config.hardware.nodes > 1:
            raise ConfigError(
                "hardware.devices and hardware.nodes must be 1, got "
                f"{config.hardware.devices} and {config.hardware.nodes}: a cell is trained by one "
                "process, and several cells at once"
            )
        if zero_shot is False and config.zero_shot.weight is None:
            config = replace(config, zero_shot=replace(config.zero_shot, weight=0.0))
        config = protocol.configure(config, member, source.format, given=grid.options.keys())
        _check_zero_shot(config, zero_shot)
    except ConfigError as error:
        raise GridError(f"{rough.name}: {error}") from error
    return replace(rough, method=method_label(config), config=config)


def _check_zero_shot(config: TrainConfig, wanted: bool | None) -> None:
    if wanted and not pooling_class(config.pool).has_attributes:
        able = ", ".join(name for name in POOLINGS if pooling_class(name).has_attributes)
        raise ConfigError(
            f"the zero-shot loss needs the attributes of a pooling out of {able}, got {config.pool}"
        )
    if wanted is not None and wanted != bool(config.zero_shot.weight):
        raise ConfigError(
            f"zero_shot.weight is {config.zero_shot.weight:g}, but the cell is one "
            f"{'with' if wanted else 'without'} the zero-shot loss"
        )
