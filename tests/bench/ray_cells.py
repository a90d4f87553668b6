"""Cells and work for the tests of Ray, which its workers import."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sumpool.bench.cells import BenchCell
from sumpool.bench.execute import CellEnd, TrainedCell, run_cell
from sumpool.protocols import Member
from sumpool.system.executors.ray_cluster import RayCluster
from sumpool.training.config import TrainConfig


def make_cells(count: int) -> list[BenchCell]:
    """Cells that differ in their seeds."""
    return [
        BenchCell("fair", "glyphs", "gap", Member(1, seed), TrainConfig(pool="gap", seed=seed))
        for seed in range(count)
    ]


class Entry(NamedTuple):
    """A line of the diary: what happened to which cell, in which process of which node."""

    what: str
    seed: int
    raylet: int
    pid: int


def write(diary: Path, what: str, seed: int) -> None:
    # In one write, so that lines of several processes do not mix.
    handle = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(handle, f"{what} {seed} {os.getppid()} {os.getpid()}\n".encode())
    finally:
        os.close(handle)


def read(store: Path) -> list[Entry]:
    diary = store / "diary"
    lines = diary.read_text().splitlines() if diary.exists() else []
    return [Entry(what, *map(int, rest)) for what, *rest in map(str.split, lines)]


def sleepy(store: Path, seconds: float, cell: BenchCell) -> CellEnd:
    """Run a cell through the store; its training is a nap."""
    return run_cell(store, cell, partial(_nap, store / "diary", seconds))


def troubled(store: Path, cell: BenchCell) -> CellEnd:
    """Run a cell that has the trouble of its seed."""
    return run_cell(store, cell, partial(_trouble, store / "diary"))


def looks_for_gpus(store: Path, cell: BenchCell) -> CellEnd:
    """Run a cell that notes which GPUs it may use, and waits for its neighbour to run too."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    (store / f"gpus-{cell.member.seed}").write_text(seen)
    return run_cell(store, cell, partial(_meet, store / "diary"))


def drive(address: str, store: str, cells: int, seconds: float) -> None:
    """A runner of its own: what a test kills."""
    cluster = RayCluster(address, folder=Path(store))
    for _ in cluster(partial(sleepy, Path(store), seconds), make_cells(cells)):
        pass


class UnsendableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def _trained() -> TrainedCell:
    return TrainedCell({"test.precision_at_1": 0.5}, 1, 1, "max_steps", "cpu", {})


def _nap(diary: Path, seconds: float, cell: BenchCell, run: Path) -> TrainedCell:
    seed = cell.member.seed
    write(diary, "begin", seed)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:  # as steps of a training, between which it can be stopped
            time.sleep(0.02)
    except KeyboardInterrupt:
        write(diary, "interrupted", seed)
        raise
    write(diary, "end", seed)
    return _trained()


def _meet(diary: Path, cell: BenchCell, run: Path) -> TrainedCell:
    seed = cell.member.seed
    write(diary, "begin", seed)
    end = time.monotonic() + 60
    while not any(it.seed == seed ^ 1 for it in read(diary.parent)):
        if time.monotonic() > end:
            raise TimeoutError(f"cell {seed} was alone")
        time.sleep(0.02)
    return _trained()


def _trouble(diary: Path, cell: BenchCell, run: Path) -> TrainedCell:
    seed = cell.member.seed
    write(diary, "begin", seed)
    if seed == 0:
        raise ValueError("nought has no training")
    if seed == 1:
        raise UnsendableError(1, 2)
    begun = sum(it.what == "begin" and it.seed == seed for it in read(diary.parent))
    if seed == 2 and begun == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return _trained()
