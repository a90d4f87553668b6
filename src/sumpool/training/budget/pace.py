"""Progress of a run in steps or time: when it validates, and when it ends."""

from __future__ import annotations

import logging
import time

from lightning.fabric import Fabric

from sumpool.training.config import TrainConfig
from sumpool.training.task import Ending, Progress

logger = logging.getLogger(__name__)


class Pace:
    """Measures a run against its last step and its time budget, whichever comes first.

    Args:
        fabric: With several processes, all use the clock of the first.
        config: The resolved configuration.

    Attributes:
        limit: Step at which training ends at the latest; None if there is no such step.
        budget: Maximum seconds of the run, over all its parts; None for no limit.

    Raises:
        ValueError: If ``config`` is not resolved.
    """

    def __init__(self, fabric: Fabric, config: TrainConfig) -> None:
        stop = config.stop
        if stop.validate_every is None or (stop.patience is None and stop.keep != "last"):
            raise ValueError("config must be resolved: stop.validate_every and patience are null")
        self._fabric, self._every, self._patience = fabric, stop.validate_every, stop.patience
        self.limit = stop.max_steps
        self.budget = None if config.minutes is None else 60 * config.minutes
        self._start = time.monotonic()

    def begin(self, progress: Progress, began: float | None) -> None:
        """Start the clock of the loop.

        Args:
            progress: Progress of the run so far.
            began: ``time.monotonic`` at the start of this part of the run: time before the loop
                counts toward the budget. None is now.
        """
        now = time.monotonic()
        progress.preparation += 0.0 if began is None else now - began
        self._start = now - progress.seconds
        if self.budget is not None and progress.used >= self.budget and not progress.step:
            logger.warning(
                "preparation took all of the time budget, %.1f minutes: there is one step of "
                "training; raise minutes",
                self.budget / 60,
            )

    def tick(self, progress: Progress) -> None:
        """Update the elapsed time in ``progress``."""
        seconds = time.monotonic() - self._start
        if self.budget is not None:  # time decides about steps: the same in all processes
            seconds = self._fabric.broadcast(seconds)
        progress.seconds = seconds

    def done_and_total(self, progress: Progress) -> tuple[float, float] | None:
        """Return the amount done and the total, in steps or seconds; None if the total is unknown.

        Seconds are those of the steps: the total is what preparation leaves of the budget.
        """
        pairs: list[tuple[float, float]] = []
        if self.limit is not None:
            pairs.append((progress.step, self.limit))
        if self.budget is not None:
            left = max(self.budget - progress.preparation, 1e-9)
            pairs.append((min(progress.seconds, left), left))
        return max(pairs, key=lambda pair: pair[0] / pair[1], default=None)

    def validates(self, progress: Progress) -> bool:
        """Whether to validate after this step: every ``validate_every`` steps, and at the end."""
        return progress.step % self._every == 0 or self._last(progress) is not None

    def end(self, progress: Progress) -> Ending | None:
        """Return why training ends now; None if it continues."""
        if self._patience is not None and progress.stale >= self._patience:
            return "patience"
        return self._last(progress)

    def _last(self, progress: Progress) -> Ending | None:
        if self.limit is not None and progress.step >= self.limit:
            return "max_steps"
        if self.budget is not None and progress.used >= self.budget and progress.step:
            return "minutes"
        return None
