"""How far a run has come, by steps or by time; when it validates, and when it ends."""

from __future__ import annotations

import logging
import time

from lightning.fabric import Fabric

from sumpool.training.config import TrainConfig
from sumpool.training.task import Ending, Progress

logger = logging.getLogger(__name__)


class Pace:
    """Measures a run by its last step and by its time budget, whichever comes first.

    Args:
        fabric: With several processes, the clock of the first holds for all.
        config: The resolved configuration.

    Attributes:
        limit: Step at which training ends in any case; None leaves it to patience.
        budget: Seconds of the run, over all its parts; None does not limit them.

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
            progress: Of the run so far.
            began: When this part of the run began, by ``time.monotonic``: what came before the loop
                belongs to the budget. None is now.
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
        """Set the time that ``progress`` has taken."""
        seconds = time.monotonic() - self._start
        if self.budget is not None:  # which decides about steps, the same in all processes
            seconds = self._fabric.broadcast(seconds)
        progress.seconds = seconds

    def done(self, progress: Progress) -> tuple[float, float] | None:
        """What is done, and what is to be done, in steps or seconds; None if nobody knows.

        Seconds are those of the steps: what preparation leaves of the budget.
        """
        pairs: list[tuple[float, float]] = []
        if self.limit is not None:
            pairs.append((progress.step, self.limit))
        if self.budget is not None:
            left = max(self.budget - progress.preparation, 1e-9)
            pairs.append((min(progress.seconds, left), left))
        return max(pairs, key=lambda pair: pair[0] / pair[1], default=None)

    def validates(self, progress: Progress) -> bool:
        """Whether the model is validated after this step: now and then, and at the end."""
        return progress.step % self._every == 0 or self._last(progress) is not None

    def end(self, progress: Progress) -> Ending | None:
        """Why training ends now; None while it does not."""
        if self._patience is not None and progress.stale >= self._patience:
            return "patience"
        return self._last(progress)

    def _last(self, progress: Progress) -> Ending | None:
        if self.limit is not None and progress.step >= self.limit:
            return "max_steps"
        if self.budget is not None and progress.used >= self.budget and progress.step:
            return "minutes"
        return None
