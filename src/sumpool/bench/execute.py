"""Run one cell: claim it, train or resume it, and store its row."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sumpool.bench.cell_log import redirect_output
from sumpool.bench.cells import BenchCell
from sumpool.bench.store.rows import BenchRow
from sumpool.bench.store.store import LOG, RUN, STARTS, BenchStore
from sumpool.report.run.folder import CHECKPOINTS, CONFIG
from sumpool.training.config import TrainConfig, flat, write_config
from sumpool.training.errors import RunError

logger = logging.getLogger(__name__)


class CellInterruptedError(RunError):
    """A cell was interrupted; its checkpoint is kept."""


@dataclass(frozen=True)
class CellEnd:
    """Outcome of :func:`run_cell`.

    Attributes:
        id: Identity of the cell.
        state: Whether it was finished here, had a row already, or is held by another process.
        seconds: Duration, if it was finished here.
    """

    id: str
    state: Literal["done", "finished elsewhere", "running elsewhere"]
    seconds: float | None = None


@dataclass(frozen=True)
class TrainedCell:
    """Results of a run that are stored in the row of its cell.

    Attributes:
        metrics: Metrics, named "validation.…" and "test.…".
        steps: Number of training steps.
        best_step: Step of the selected model.
        stopped: Why training ended.
        device: Device it was trained on.
        versions: Versions of Python and of packages.
        seconds_before: Duration of the attempts that it resumed, in seconds.
    """

    metrics: Mapping[str, float]
    steps: int
    best_step: int
    stopped: str
    device: str
    versions: Mapping[str, str]
    seconds_before: float = 0.0


#: Trains a cell into the given run folder.
Training = Callable[[BenchCell, Path], TrainedCell]


def run_cell(store_folder: Path, cell: BenchCell, train: Training | None = None) -> CellEnd:
    """Train ``cell`` unless it is finished or another process holds it, and store its row.

    This process holds the claim on the cell until the row is written. It may be killed at any time:
    the next one resumes from the last checkpoint. Stdout and stderr go to ``cells/ID/log.txt``.

    Raises:
        CellInterruptedError: If a signal interrupts it.
        Exception: Any exception raised by training; the log contains the traceback.
    """
    store = BenchStore(store_folder)
    if store.row(cell.id) is not None:
        return CellEnd(cell.id, "finished elsewhere")
    with store.claim(cell.id) as mine:
        if not mine:
            return CellEnd(cell.id, "running elsewhere")
        # Its previous holder may just have finished it.
        if store.row(cell.id) is not None:
            return CellEnd(cell.id, "finished elsewhere")
        folder = store.cell_folder(cell.id)
        folder.mkdir(parents=True, exist_ok=True)
        starts = _note_start(store, cell)
        with redirect_output(folder / LOG):
            try:
                return _run(store, cell, folder, starts, train or train_or_resume)
            except BaseException:
                # Users look into the log; the caller gets the exception as well.
                traceback.print_exc()
                raise


def train_or_resume(cell: BenchCell, run: Path) -> TrainedCell:
    """Train ``cell`` into the run folder ``run``, or resume the run in it.

    Raises:
        CellInterruptedError: If a signal interrupts it.
    """
    from sumpool.training.run import run_training
    from sumpool.training.run_folder import RunFolder

    # Checkpoints are needed to resume until the row is stored, then they are removed.
    config = replace(cell.config, out=str(run), keep_checkpoints=True)
    before = _resumable(run, config)
    # No validation before training: every cell of a grid would pay for it.
    result = run_training(
        config, resume=None if before is None else run, progress=False, validate_first=False
    )
    outcome = result.outcome
    if outcome.stopped == "interrupted":
        raise CellInterruptedError(
            f"stopped by {outcome.signal or 'a signal'} after step {outcome.steps}; its checkpoint "
            "is kept"
        )
    facts = RunFolder(run).facts()
    gpus = facts["machine"]["gpus"]
    return TrainedCell(
        metrics={
            f"{part}.{name}": float(value)
            for part, found in result.metrics.items()
            for name, value in found.items()
        },
        steps=outcome.steps,
        best_step=outcome.best_step,
        stopped=outcome.stopped,
        device=gpus[0] if facts["device"] == "cuda" and gpus else facts["device"],
        versions=facts["versions"],
        seconds_before=before or 0.0,
    )


def _run(
    store: BenchStore, cell: BenchCell, folder: Path, starts: list[dict[str, Any]], train: Training
) -> CellEnd:
    logger.info("attempt %d at %s (%s), %s", len(starts), cell.name, cell.id, starts[-1])
    begun = time.monotonic()
    run = folder / RUN
    trained = train(cell, run)
    seconds = round(trained.seconds_before + time.monotonic() - begun, 3)
    row = BenchRow(
        cell.id,
        *cell.key,
        cell.member.fold,
        cell.member.seed,
        config=json.dumps(flat(cell.config), ensure_ascii=False),
        versions=json.dumps(dict(trained.versions)),
        device=trained.device,
        # The first start with a known time: a torn line has none.
        started=next(start["started"] for start in starts if "started" in start),
        duration_s=seconds,
        attempts=len(starts),
        steps=trained.steps,
        best_step=trained.best_step,
        stopped=trained.stopped,
        metrics=trained.metrics,
        folder=run.relative_to(store.folder).as_posix(),
    )
    store.add(row)
    # A finished cell is never resumed, and checkpoints are most of what a run takes on disk.
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    logger.info("finished after %.1f s and %d steps", seconds, trained.steps)
    return CellEnd(cell.id, "done", seconds)


def _note_start(store: BenchStore, cell: BenchCell) -> list[dict[str, Any]]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    start = {"started": now, "host": socket.gethostname(), "pid": os.getpid()}
    path = store.cell_folder(cell.id) / STARTS
    before = path.read_bytes() if path.is_file() else b""
    with path.open("ab") as file:
        if before and not before.endswith(b"\n"):
            file.write(b"\n")  # a line torn by a crash must not damage this one
        file.write((json.dumps(start) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    return store.starts(cell.id)


def _resumable(run: Path, config: TrainConfig) -> float | None:
    """Return the seconds spent on the run; None, after removing it, if it cannot be resumed."""
    from sumpool.training.run_folder import RunFolder

    if not run.exists():
        return None
    folder = RunFolder(run)
    try:
        folder.facts()
        state = folder.checkpoints.load()
    except RunError as error:
        logger.warning("the run in %s cannot be resumed: %s", run, error)
        state = None
    if state is None:
        logger.info("there is no checkpoint: the run begins anew")
        shutil.rmtree(run)
        return None
    # Only the location of the data and the hardware can have changed since. So the file is replaced
    # whatever it contains, even if it is damaged.
    write_config(config, run / CONFIG)
    seconds = float(state["progress"]["seconds"])
    logger.info("resumes from step %d", state["progress"]["step"])
    return seconds
