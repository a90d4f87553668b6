"""Cells of a study: trainings without a folder of their own, many side by side."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from sumpool.evaluation import evaluate_retrieval
from sumpool.models import Embedder
from sumpool.system.cores import usable_cores
from sumpool.system.files import StoreError
from sumpool.system.processes import Done, run_in_processes
from sumpool.system.rows import ResultStore, Row
from sumpool.training import TrainConfig
from sumpool.training.assemble import (
    build_fabric,
    build_feed,
    build_model,
    build_task,
    check_devices,
    judge,
)
from sumpool.training.fabric_logging import quiet_fabric
from sumpool.training.loop import Trainer
from sumpool.training.settings import resolve
from sumpool.training.splits import Splits, open_splits
from sumpool.training.task import Outcome


class CellResult(NamedTuple):
    """What a cell gives.

    Attributes:
        metrics: The measured numbers by name.
        arrays: What figures need besides numbers.
    """

    metrics: Mapping[str, float]
    arrays: Mapping[str, NDArray[Any]] | None = None


#: Computes a cell. It is sent to other processes: a function of a module, or a partial of one.
Work = Callable[[dict[str, Any]], CellResult]
#: What a cell gave, and the seconds it took: metrics, seconds, arrays.
Timed = tuple[Mapping[str, float], float, Mapping[str, NDArray[Any]] | None]
#: A cell that was computed, or failed.
DoneCell = Done[dict[str, Any], Timed]


def run_cells(
    store: ResultStore,
    cells: Sequence[dict[str, Any]],
    work: Work,
    *,
    jobs: int | None = None,
    quick: bool = False,
    progress: bool = True,
    description: str = "cells",
) -> list[Row]:
    """Compute the cells that ``store`` does not have and return the rows of all.

    A cell is stored as soon as it is finished, so that an interrupt loses none that were finished
    before. One that fails, or whose metrics cannot be stored, keeps no other from being computed
    and stored; the first failure is raised when all are done.

    Args:
        store: Where rows are kept.
        cells: What tells each cell from the others.
        work: Computes one.
        jobs: Cells that run side by side, each in a process; 1 computes them in this one. None is
            one a core.
        quick: Whether a cell takes less time than starting a process; None is one job then.
        progress: Whether to show a bar.
        description: What the bar calls it.

    Returns:
        The rows in the order of ``cells``.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    missing = [cell for cell in cells if store.find(cell) is None]
    cores = usable_cores()
    jobs = min(jobs or (1 if quick else cores), max(1, len(missing)))
    with tqdm(total=len(missing), desc=description, unit="cell", disable=not progress) as bar:
        if jobs == 1:
            finished = _one_by_one(work, missing)
        else:
            threads = max(1, cores // jobs)
            finished = run_in_processes(partial(_timed, work), missing, jobs, threads=threads)
        _store_all(store, finished, bar)
    rows = [store.find(cell) for cell in cells]
    return [row for row in rows if row is not None]


def _one_by_one(work: Work, cells: Sequence[dict[str, Any]]) -> Generator[DoneCell, None, None]:
    """In this process what :func:`run_in_processes` does in others."""
    for cell in cells:
        try:
            done: DoneCell = Done(cell, _timed(work, cell), None)
        except Exception as error:
            # Otherwise its models would stay in memory, beside those of the next cells.
            traceback.clear_frames(error.__traceback__)
            done = Done(cell, None, error)
        yield done


def _store_all(store: ResultStore, finished: Generator[DoneCell, None, None], bar: Any) -> None:
    """Store what is finished, and raise the first failure when all are."""
    failures = []
    with closing(finished):
        for cell, found, failure in finished:
            if failure is None:
                assert found is not None
                try:
                    store.add(cell, *found)
                except StoreError as error:
                    failure = error
            if failure is None:
                bar.update()
            else:
                failures.append((cell, failure))
                bar.set_postfix_str(f"{len(failures)} failed")
    if failures:
        cell, first = failures[0]
        first.add_note(f"in the cell {cell}, the first of {len(failures)} that failed")
        raise first


def _timed(work: Work, cell: dict[str, Any]) -> Timed:
    with quiet_fabric():
        begun = time.perf_counter()
        metrics, arrays = work(cell)
        return metrics, time.perf_counter() - begun, arrays


#: Looks at a model while it is trained.
Watch = Callable[[Embedder], None]


@dataclass(frozen=True)
class Trained:
    """What came out of :func:`train_cell`.

    Attributes:
        model: With the weights of its best validation, on the device it was trained on.
        criterion: The loss, with what it learned.
        metrics: Metrics under "validation" and, where the data has one, "test".
        outcome: How training ended.
        splits: The data.
        config: The configuration, resolved.
        problems: Problems of chance-constrained proxies, in the columns of problems.csv.
        proxy_trace: Their converged proxies, and those the next began with (None after the last).
        validations: Step and monitored metric of each validation, in order.
    """

    model: Embedder
    criterion: nn.Module
    metrics: dict[str, dict[str, float]]
    outcome: Outcome
    splits: Splits
    config: TrainConfig
    problems: list[dict[str, float]]
    proxy_trace: list[tuple[Tensor, Tensor | None]]
    validations: list[tuple[int, float]]

    @property
    def centers(self) -> Tensor | None:
        """Proxies (C, K, D) at the best step; None if the loss has none."""
        own = getattr(self.criterion, "centers", None)
        if own is None or not self.criterion.proxy_parameters():  # type: ignore[operator]
            return None
        centers: Tensor = own().detach()
        return centers


def train_cell(
    config: TrainConfig, *, splits: Splits | None = None, watch: Watch | None = None
) -> Trained:
    """Train and judge a model without a folder: for cells that are short enough to be redone.

    Args:
        config: What to do; ``out`` and ``exhibits`` play no part.
        splits: The data, for cells that share it; None opens what ``config`` names.
        watch: Called with the model at every validation, before it is judged.

    Raises:
        KeyboardInterrupt: If a signal ended it before its time.
    """
    fabric = build_fabric(config)
    fabric.launch()
    torch.manual_seed(config.seed)
    if splits is None:
        splits = open_splits(config, progress=False)
    config = resolve(config, splits.name)
    check_devices(config, fabric)
    model = build_model(config)
    feed = build_feed(config, splits.train, model.preprocessing, fabric, progress=False)
    kept = build_feed(config, splits.validation, model.preprocessing, fabric, progress=False)
    validate = judge(kept, fabric)
    validations: list[tuple[int, float]] = []

    def watched(network: nn.Module) -> dict[str, float]:
        if watch is not None:
            watch(model)
        found = validate(network)
        validations.append((trainer.progress.step, found[config.stop.monitor]))
        return found

    task = build_task(config, model, feed, watched, fabric, data_set=splits.name)
    trainer = Trainer(fabric, task, config, None, progress=False)
    outcome = trainer.fit()
    if outcome.stopped == "interrupted":
        raise KeyboardInterrupt
    metrics = {"validation": evaluate_retrieval(model, kept, device=fabric.device).metrics}
    if splits.test is not None:
        query, gallery = (
            None
            if part is None
            else build_feed(config, part, model.preprocessing, fabric, progress=False)
            for part in (splits.test.query, splits.test.gallery)
        )
        assert query is not None
        metrics["test"] = evaluate_retrieval(model, query, gallery, device=fabric.device).metrics
    solved = trainer.alternating
    return Trained(
        model,
        task.criterion,
        metrics,
        outcome,
        splits,
        config,
        problems=[] if solved is None else solved.problems,
        proxy_trace=[] if solved is None else solved.trace,
        validations=validations,
    )
