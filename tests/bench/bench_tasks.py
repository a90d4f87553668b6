"""Cells and runs for tests of the engine: they take no time, and note that they were run."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from sumpool.bench.cells import BenchCell
from sumpool.bench.execute import TrainedCell, run_cell
from sumpool.bench.runner import run_bench
from sumpool.bench.store.store import BenchStore
from sumpool.protocols import Member
from sumpool.system.executors.local import LocalProcesses
from sumpool.system.processes import Done, WorkerError, terminate_with_parent
from sumpool.training.config import TrainConfig

#: One line a training that was begun, and one a training that came to its end.
BEGUN, ENDED = "begun.txt", "ended.txt"


def fake_cells(number: int, **options: Any) -> list[BenchCell]:
    """Cells that differ in their seed."""
    return [
        BenchCell(
            "fair",
            "glyphs",
            "gap",
            Member(1, seed),
            TrainConfig(format="glyphs", pool="gap", fold=1, seed=seed, **options),
        )
        for seed in range(number)
    ]


def trained(value: float = 0.5) -> TrainedCell:
    return TrainedCell(
        metrics={"test.precision_at_1": value, "validation.precision_at_1": value},
        steps=4,
        best_step=2,
        stopped="max_steps",
        device="cpu",
        versions={"python": "3"},
    )


def note(run: Path, file: str) -> None:
    run.mkdir(parents=True, exist_ok=True)
    with (run.parent / file).open("ab") as noted:
        noted.write(f"{os.getpid()}\n".encode())


def train_quickly(cell: BenchCell, run: Path) -> TrainedCell:
    note(run, BEGUN)
    sys.stdout.write(f"training {cell.name}\n")
    note(run, ENDED)
    return trained()


def train_for_a_moment(cell: BenchCell, run: Path) -> TrainedCell:
    note(run, BEGUN)
    time.sleep(0.3)
    note(run, ENDED)
    return trained()


def train_once_until_killed(cell: BenchCell, run: Path) -> TrainedCell:
    """In its first attempt it waits to be killed; in the next one it ends at once."""
    note(run, BEGUN)
    if len((run.parent / BEGUN).read_text().split()) == 1:
        time.sleep(600)
    note(run, ENDED)
    return trained()


def fail_on_odd_seeds(cell: BenchCell, run: Path) -> TrainedCell:
    note(run, BEGUN)
    sys.stderr.write(f"seed {cell.member.seed} is looked at\n")
    if cell.member.seed % 2:
        raise ValueError(f"seed {cell.member.seed} is odd")
    return trained()


def fail_in_the_first_attempt(cell: BenchCell, run: Path) -> TrainedCell:
    note(run, BEGUN)
    if len((run.parent / BEGUN).read_text().split()) == 1:
        raise ValueError("not yet")
    return trained()


def die_in_the_first_attempt(cell: BenchCell, run: Path) -> TrainedCell:
    note(run, BEGUN)
    if cell.member.seed == 1 and len((run.parent / BEGUN).read_text().split()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note(run, ENDED)
    return trained()


def work_with(folder: Path, train: Any) -> Any:
    """Work for an executor."""
    return partial(run_cell, folder, train=train)


class Forked:
    """An executor whose processes start at once, since they are copies of the runner."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __call__(self, work: Any, cells: Sequence[BenchCell]) -> Iterator[Any]:
        context = multiprocessing.get_context("fork")
        left, busy = list(cells), {}
        while left or busy:
            while left and len(busy) < self.jobs:
                cell = left.pop(0)
                here, there = context.Pipe()
                process = context.Process(target=_forked, args=(work, cell, there, os.getpid()))
                process.start()
                there.close()
                busy[here] = process, cell
            for ready in wait(list(busy)):
                process, cell = busy.pop(ready)
                try:
                    done = Done(cell, ready.recv(), None)
                except EOFError:
                    process.join()
                    text = f"its process ended with exit code {process.exitcode}"
                    done = Done(cell, None, WorkerError(text))
                yield done


def _forked(work: Any, cell: BenchCell, connection: Any, runner: int) -> None:
    terminate_with_parent(runner)
    connection.send(work(cell))


def run_runner(folder: str, train: str, number: str, executor: str) -> None:
    """A runner with two jobs, in a process of its own."""
    if importlib.util.find_spec("pandas"):
        # pyarrow imports it with the first row, in every process.
        importlib.import_module("pandas")
    work = work_with(Path(folder), globals()[train])
    run_bench(
        BenchStore(Path(folder)),
        fake_cells(int(number)),
        {"forked": Forked, "local": LocalProcesses}[executor](2),
        progress=False,
        work=work,
        look_again=0.2,
    )


if __name__ == "__main__":
    import bench.bench_tasks as itself  # the processes find its functions under this name

    itself.run_runner(*sys.argv[1:])
