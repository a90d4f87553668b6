"""Input, progress and outcome of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lightning.fabric import Fabric
from torch import Tensor, nn

from sumpool.data import ClassBatchSampler, ImageFeed
from sumpool.training.errors import RunError

#: Why training ended without an interrupt.
Ending = Literal["patience", "max_steps", "minutes"]
#: Evaluates a model; returns metrics by name.
Validate = Callable[[nn.Module], dict[str, float]]


@dataclass(frozen=True)
class Task:
    """Model, loss, data and validation of a training run.

    Attributes:
        model: The embedder.
        criterion: A loss of embeddings and labels, or a mixture that takes attributes too.
        feed: The training images.
        sampler: Composes their batches.
        class_of: The class 0..C−1 that the loss sees for each label of the feed.
        validate: Evaluates a model; returns metrics by name.
        regularizer: Regularizes the centers (C, K, D) of the criterion; None for none.
    """

    model: nn.Module
    criterion: nn.Module
    feed: ImageFeed
    sampler: ClassBatchSampler
    class_of: Tensor
    validate: Validate
    regularizer: nn.Module | None = None

    def measure(self, fabric: Fabric, monitor: str, step: int) -> dict[str, float]:
        """Return the model's metrics, the same in all processes; leaves it in training mode.

        Raises:
            RunError: If the metric ``monitor`` is not finite.
        """
        with fabric.autocast():
            metrics: dict[str, float] = fabric.broadcast(self.validate(self.model))
        self.model.train()
        if not math.isfinite(metrics[monitor]):
            raise RunError(
                f"validation gives {monitor} = {metrics[monitor]} at step {step}: the validation "
                "classes need at least two images each"
            )
        return metrics


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        step: Steps done.
        seconds: Time spent in steps and validations, over all parts of the run.
        best_value: Best value of the monitored metric.
        best_step: Step of that value; 0 before the first validation.
        stale: Validations since that step.
        preparation: Seconds before the steps, spent on images and features, over all parts.
    """

    step: int = 0
    seconds: float = 0.0
    best_value: float = -math.inf
    best_step: int = 0
    stale: int = 0
    preparation: float = 0.0

    @property
    def used(self) -> float:
        """Seconds that count toward a time budget."""
        return self.preparation + self.seconds


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        stopped: "patience", "max_steps", "minutes", or "interrupted" by ``signal``.
        steps: Steps done.
        best_step: Step of the model that is kept.
        signal: The signal that interrupted it.
    """

    stopped: Ending | Literal["interrupted"]
    steps: int
    best_step: int
    signal: str | None = None
