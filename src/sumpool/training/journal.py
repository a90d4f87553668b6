"""Logging of a run: progress bar, CSV files, TensorBoard."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning.fabric import Fabric
from tqdm import tqdm

from sumpool.report.run.folder import BOARD, LOG, PROBLEMS, VALIDATION
from sumpool.training.config import TrainConfig
from sumpool.training.run_folder import CsvLog, RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from sumpool.training.task import Progress

#: Format of the progress bar of a run with a time budget.
TIMED = "{l_bar}{bar}| {n:.0f} of {total:.0f} s{postfix}"
LOSS_COLUMNS = ("loss", "base_loss", "zero_shot_loss", "center_loss")
#: Columns of ``problems.csv``: the finished problems of a run with chance-constrained proxies.
PROBLEM_COLUMNS = (
    *("problem", "first_step", "last_step", "best_step", "value"),
    *("covering_radius", "spread", "violation_rate", "violation_bound", "drift", "travel", "norm"),
)
#: Columns of ``validation.csv``.
VALIDATION_COLUMNS = (
    *("step", "seconds", "precision_at_1"),
    *("recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8"),
    *("r_precision", "mean_average_precision_at_r", "queries", "queries_without_match", "is_best"),
)


class Journal:
    """Logs on the first process only: to ``folder`` unless None, to a progress bar if ``bar``."""

    def __init__(
        self, fabric: Fabric, config: TrainConfig, folder: RunFolder | None, *, bar: bool
    ) -> None:
        self._config = config
        self._folder = folder if fabric.is_global_zero else None
        self._shown = bar and fabric.is_global_zero
        self._bar: Any = None
        self._log: CsvLog | None = None
        self._validation: CsvLog | None = None
        self._problems: CsvLog | None = None
        self._board: SummaryWriter | None = None
        self._postfix: dict[str, str] = {}
        self._lap = time.monotonic()

    def open(self, progress: Progress, *, resume: bool, solved: int = 0) -> None:
        """Open files and bar; with ``resume``, keep the lines of files up to the current step."""
        keep_until = progress.step if resume else None
        if self._folder is not None:
            # Imported here: TensorBoard takes a second to import.
            from torch.utils.tensorboard import SummaryWriter

            path = self._folder.path
            log_columns = ("step", "seconds", *LOSS_COLUMNS, "learning_rate", "images_per_second")
            self._log = CsvLog(path / LOG, log_columns, keep_until)
            # A run that starts over validates at step 0 again.
            self._validation = CsvLog(path / VALIDATION, VALIDATION_COLUMNS, keep_until or None)
            if self._config.ccp.enabled:
                problems = path / PROBLEMS
                self._problems = CsvLog(
                    problems, PROBLEM_COLUMNS, solved if resume else None, key="problem"
                )
            self._board = SummaryWriter(str(path / BOARD), purge_step=keep_until)
        # Outside a terminal every update is a line of its own, so updates are rare.
        every = 0.1 if sys.stderr.isatty() else 15.0
        timed = {"bar_format": TIMED} if self._config.minutes is not None else {}
        self._bar = tqdm(
            total=self._first_end(progress),
            initial=self._place(progress),
            unit="step",
            desc="training",
            disable=not self._shown,
            mininterval=every,
            dynamic_ncols=True,
            **timed,
        )
        self._lap = time.monotonic()

    def advance(self, progress: Progress) -> None:
        """Advance the bar by a step, or, with a time budget, by the time it took."""
        if self._config.minutes is not None:
            self._bar.total = max(self._first_end(progress), self._place(progress))
            self._set_postfix(step=f"{progress.step:,}")
        self._bar.update(self._place(progress) - self._bar.n)

    def log(self, progress: Progress, means: Mapping[str, float], rate: float, images: int) -> None:
        """Log the losses, averaged over the ``images`` images since the last line."""
        speed = images / max(time.monotonic() - self._lap, 1e-9)
        self._lap = time.monotonic()
        row = {
            "step": progress.step,
            "seconds": round(progress.seconds, 3),
            **means,
            "learning_rate": rate,
            "images_per_second": round(speed, 2),
        }
        if self._log is not None:
            self._log.add(row)
        self._to_board("train", progress.step, {**means, "learning_rate": rate, "speed": speed})
        self._set_postfix(loss=f"{means['loss']:.4f}", speed=f"{speed:.0f} images/s")

    def validated(self, progress: Progress, metrics: Mapping[str, float], is_best: bool) -> None:
        """Log a validation; the one at step 0 precedes training."""
        if self._validation is not None:
            known = {name: metrics[name] for name in VALIDATION_COLUMNS if name in metrics}
            row = {"step": progress.step, "seconds": round(progress.seconds, 3), **known}
            self._validation.add({**row, "is_best": int(is_best)})
        self._to_board("validation", progress.step, metrics)
        self._bar.total = self._first_end(progress)
        if progress.best_step:
            self._set_postfix(best=f"{progress.best_value:.4f} at {progress.best_step}")
        self._lap = time.monotonic()

    def solved(self, problem: Mapping[str, float]) -> None:
        """Log a finished problem of chance-constrained proxies."""
        if self._problems is not None:
            self._problems.add(problem)
        step = int(problem["last_step"])
        self._to_board("problem", step, {name: problem[name] for name in PROBLEM_COLUMNS[4:]})
        self._set_postfix(problem=f"{int(problem['problem']) + 1}")

    def close(self) -> None:
        """Close the bar and the files."""
        if self._bar is not None:
            self._bar.close()
        for file in (self._log, self._validation, self._problems, self._board):
            if file is not None:
                file.close()

    def _place(self, progress: Progress) -> float:
        # With a time budget the bar counts seconds, else steps.
        if self._config.minutes is None:
            return progress.step
        return round(min(progress.used, 60 * self._config.minutes), 1)

    def _first_end(self, progress: Progress) -> float:
        # Where training ends, in steps or seconds, if no further validation improves.
        stop = self._config.stop
        if self._config.minutes is not None:
            return 60 * self._config.minutes
        if stop.patience is None:
            assert stop.max_steps is not None
            return stop.max_steps
        assert stop.validate_every is not None
        best_step = progress.best_step or stop.validate_every
        end = best_step + stop.patience * stop.validate_every
        if stop.max_steps is not None:
            end = min(end, stop.max_steps)
        return max(end, progress.step)

    def _set_postfix(self, **words: str) -> None:
        self._postfix.update(words)
        self._bar.set_postfix_str(
            ", ".join(f"{name} {text}" for name, text in self._postfix.items()), refresh=False
        )

    def _to_board(self, group: str, step: int, values: Mapping[str, float]) -> None:
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{group}/{name}", value, step)
