"""Training without files, for studies and benchmarks that store their own results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from sumpool.losses.catalog import LOSSES
from sumpool.models import Embedder
from sumpool.training.config import TrainConfig
from sumpool.training.loop import Trainer
from sumpool.training.prepare import prepare
from sumpool.training.splits import Splits
from sumpool.training.task import Outcome

#: Inspects a model during training.
Watch = Callable[[Embedder], None]
#: Receives step and monitored metric of a validation; an exception it raises ends training.
Report = Callable[[int, float], None]


@dataclass(frozen=True)
class Trained:
    """The result of :func:`train_in_memory`.

    Attributes:
        model: The embedder with the weights to keep, on the device it was trained on.
        criterion: The loss, with its learned parameters.
        metrics: Metrics under "validation" and, if the data has a test part, "test".
        outcome: How training ended.
        splits: The data.
        config: The resolved configuration.
        problems: Problems of chance-constrained proxies, in the columns of problems.csv.
        proxy_trace: Their converged proxies and the initial ones of the next (None for the last).
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
        if not (LOSSES[self.config.loss].proxy or self.config.ccp.enabled):
            return None
        centers: Tensor = self.criterion.centers().detach()  # type: ignore[operator]
        return centers


def train_in_memory(
    config: TrainConfig,
    *,
    splits: Splits | None = None,
    watch: Watch | None = None,
    report: Report | None = None,
) -> Trained:
    """Train and evaluate a model without a run folder, for runs short enough to be repeated.

    Args:
        config: The configuration; ``out`` and ``gallery`` are not used.
        splits: The data, for runs that share it; None opens the data set named by ``config``.
        watch: Called with the model at every validation, before it is evaluated.
        report: Called with the step and the monitored metric after every validation.

    Raises:
        KeyboardInterrupt: If a signal interrupted training.
    """
    prepared = prepare(config, splits=splits)
    config, task = prepared.config, prepared.task
    validations: list[tuple[int, float]] = []

    def validate(network: nn.Module) -> dict[str, float]:
        if watch is not None:
            watch(prepared.model)
        metrics = task.validate(network)
        validations.append((trainer.progress.step, metrics[config.stop.monitor]))
        if report is not None:
            report(*validations[-1])
        return metrics

    watched = replace(task, validate=validate)
    trainer = Trainer(prepared.fabric, watched, config, progress=False)
    with prepared:
        outcome = trainer.fit()
        if outcome.stopped == "interrupted":
            raise KeyboardInterrupt(outcome.signal)
        feeds = prepared.evaluation_feeds(cache_test=True)
        found = {name: prepared.evaluate(images).metrics for name, images in feeds.items()}
    alternating = trainer.alternating
    return Trained(
        prepared.model,
        task.criterion,
        found,
        outcome,
        prepared.splits,
        config,
        problems=[] if alternating is None else alternating.problems,
        proxy_trace=[] if alternating is None else alternating.trace,
        validations=validations,
    )
