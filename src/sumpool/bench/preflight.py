"""Check that the cells of a grid can be trained, before the first one starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sumpool.bench.cells import BenchCell
from sumpool.bench.grid import GridError
from sumpool.data import DataError, ImageDataset
from sumpool.models import ModelError
from sumpool.protocols import PROTOCOLS
from sumpool.system.fabric_logging import quiet_fabric
from sumpool.system.threads import one_thread
from sumpool.system.wording import counted
from sumpool.training.assemble import build_fabric, build_model, build_task, check_devices
from sumpool.training.config import ConfigError
from sumpool.training.splits import Splits, open_splits

if TYPE_CHECKING:
    from sumpool.data import ImageFeed


#: Largest K of the evaluated R@K.
LARGEST_K = 8


def check_cells(
    cells: Sequence[BenchCell], *, here: bool = True, decode: Collection[str] = ()
) -> None:
    """Open every data set once, and build network, loss and batches of every method once.

    Args:
        cells: The cells of a grid.
        here: Whether they will be trained on this machine, so that its devices are checked too.
        decode: Data sets whose images are all decoded, with a progress bar.

    Raises:
        GridError: If a cell cannot be trained; names it and, if the data is the cause, the number
            of other cells affected.
    """
    opened: dict[str, Splits] = {}
    tried: set[str] = set()
    with quiet_fabric(), one_thread():  # other runners may use the cores
        for cell in cells:
            if cell.data_set not in opened:
                opened[cell.data_set] = _open(cell, cells, decode=cell.data_set in decode)
            if cell.group not in tried:
                tried.add(cell.group)
                _build(cell, opened[cell.data_set], here)


def _open(cell: BenchCell, cells: Sequence[BenchCell], *, decode: bool) -> Splits:
    try:
        # Also check images that a cache would decode later: no cell should fail on a broken one.
        config = replace(cell.config, cache="none", freeze_backbone=False)
        splits = open_splits(config, check=decode)
        if PROTOCOLS[cell.protocol].evaluated_on == "test" and splits.test is None:
            raise ConfigError(
                f"the data has no test part, which the {cell.protocol} protocol evaluates models "
                "on: make one, such as a folder test/ beside train/, or a column split"
            )
        _check_sizes(splits)
        return splits
    except (DataError, ConfigError, ValueError) as error:
        others = sum(it.data_set == cell.data_set for it in cells) - 1
        more = f" (and {others} more cells of {cell.data_set})" if others else ""
        raise GridError(f"{cell.name}{more}: {error}") from error


def _check_sizes(splits: Splits) -> None:
    parts = {"validation": splits.validation}
    if splits.test is not None:
        parts["test"] = splits.test.gallery or splits.test.query
    for name, part in parts.items():
        if len(part) <= LARGEST_K:
            raise ConfigError(
                f"the {name} part has {counted(len(part), 'image')}, R@{LARGEST_K} needs at least "
                f"{LARGEST_K + 1}"
            )


def _build(cell: BenchCell, splits: Splits, here: bool) -> None:
    config = cell.config
    on_cpu = replace(config, hardware=replace(config.hardware, accelerator="cpu", devices=1))
    try:
        if here:
            check_devices(config, build_fabric(config))
        build_task(
            config,
            build_model(config),
            cast("ImageFeed", _Unfed(splits.train)),
            _never,
            build_fabric(replace(on_cpu, hardware=replace(on_cpu.hardware, nodes=1))),
            data_set=splits.name,
        )
    except (ConfigError, DataError, ModelError, ValueError, RuntimeError) as error:
        raise GridError(f"{cell.name}: {error}") from error


class _Unfed:
    """A feed that only provides its data set; no image is ever loaded."""

    def __init__(self, dataset: ImageDataset) -> None:
        self.dataset = dataset


def _never(model: Any) -> dict[str, float]:
    raise AssertionError("nothing is evaluated while a grid is checked")
