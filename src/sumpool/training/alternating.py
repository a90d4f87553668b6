"""Chance-constrained proxies in the training loop: pools of images, metrics of each problem."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor

from sumpool.ccp import Alternation, ProxyPairs, draw_pool, pair_violations
from sumpool.centers import covering_radius
from sumpool.data import ClassBatchSampler
from sumpool.evaluation import embed_images
from sumpool.losses import Mixture
from sumpool.system.modes import evaluating
from sumpool.training.config import TrainConfig
from sumpool.training.journal import Journal
from sumpool.training.task import Task

#: Random stream of the pools; batches and views have streams of their own.
_POOLS = 5
#: Maximum number of classes in the count of violated pairs.
MEASURED_CLASSES = 400
#: Maximum number of random views embedded at once.
RANDOM_VIEWS = 64


class Alternating:
    """Runs a :class:`sumpool.ccp.Alternation` in the training loop, and logs its problems.

    Args:
        fabric: Devices and precision.
        task: The task; its criterion is or contains a :class:`sumpool.ccp.ProxyPairs`.
        config: The resolved configuration.
        optimizer: The optimizer; its moments of the proxies are reset with every problem.
        journal: Logs every finished problem.
        trace: Whether to keep the proxies of every problem.

    Attributes:
        problems: Metrics at the end of each problem, in the columns of problems.csv.
        trace: Converged proxies of each problem and initial proxies of the next, both (C, P, D);
            the latter are None for the last problem. Empty unless ``trace`` is set.
    """

    def __init__(
        self,
        fabric: Fabric,
        task: Task,
        config: TrainConfig,
        optimizer: torch.optim.Optimizer,
        journal: Journal,
        *,
        trace: bool,
    ) -> None:
        ccp, criterion = config.ccp, task.criterion
        pairs = criterion.base if isinstance(criterion, Mixture) else criterion
        assert isinstance(pairs, ProxyPairs)
        self._fabric, self._task, self._config, self._pairs = fabric, task, config, pairs
        self._optimizer, self._journal = optimizer, journal
        assert ccp.solution is not None
        self._alternation = Alternation(
            task.model,
            criterion,
            pairs,
            weight=ccp.pull,
            patience=ccp.patience,
            problems=ccp.problems,
            solution=ccp.solution,
        )
        self._class_of = task.class_of.to(fabric.device)
        self._classes = task.class_of[task.feed.dataset.labels]
        self._tracing = trace
        self.problems: list[dict[str, float]] = []
        self.trace: list[tuple[Tensor, Tensor | None]] = []

    @property
    def pulled(self) -> bool:
        """Whether steps include the pull, as from the second problem on."""
        return self._alternation.problem.number > 1

    @property
    def due(self) -> bool:
        """Whether the problem has ended and the next has not begun."""
        return self._alternation.due

    def begin(self) -> None:
        """Draw the initial proxies, before the first step."""
        chosen, _ = self._pool(0, size=self._pairs.proxies.shape[1])
        self._alternation.begin(chosen, *self._pool(1))

    def add_pull(self) -> None:
        """Add the pull to the gradients."""
        self._alternation.add_pull()

    def validated(self, value: float, step: int) -> bool:
        """Record a validation; return whether it ends the problem."""
        return self._alternation.validated(value, step)

    def turn(self, step: int) -> None:
        """End the problem, measure it, and begin the next."""
        self._alternation.settle()
        vectors, mask = self._finish(step)
        self._alternation.renew(step, vectors, mask)
        self._forget_moments()
        if self._tracing:
            self.trace[-1] = (self.trace[-1][0], self._pairs.centers().detach().cpu().clone())

    def close(self, step: int) -> None:
        """Measure the last problem at its solution, at the end of the run."""
        if self._alternation.settle():
            self._finish(step)

    def state_dict(self) -> dict[str, Any]:
        """Return the state needed to resume."""
        return {"alternation": self._alternation.state_dict(), "problems": self.problems}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state returned by :meth:`state_dict`."""
        self._alternation.load_state_dict(state["alternation"])
        self.problems = list(state["problems"])

    def _finish(self, step: int) -> tuple[Tensor, Tensor]:
        problem = self._alternation.problem
        vectors, mask = self._pool(problem.number + 1)
        measured = {
            "problem": float(problem.number),
            "first_step": float(problem.first_step),
            "last_step": float(step),
            "best_step": float(problem.best_step),
            "value": problem.best_value,
            **self._measure(vectors, mask),
            "drift": self._alternation.pull.drift(),
            "travel": self._alternation.travel(),
            "norm": float(vectors.norm(dim=-1)[mask].mean()),
        }
        self.problems.append(measured)
        counts = ("problem", "first_step", "last_step", "best_step")
        self._journal.solved({**measured, **{name: int(measured[name]) for name in counts}})
        if self._tracing:
            self.trace.append((self._pairs.centers().detach().cpu().clone(), None))
        return vectors, mask

    @torch.no_grad()
    def _measure(self, vectors: Tensor, mask: Tensor) -> dict[str, float]:
        ccp = self._config.ccp
        assert ccp.beta is not None
        assert ccp.alpha is not None
        centers = self._pairs.centers()
        among = torch.cdist(centers, centers)  # (C, P, P)
        count = centers.shape[1]
        spread = float(among.sum((1, 2)).mean()) / max(1, count * (count - 1))
        # The number of pairs grows with the square of the number of classes.
        step = -(-len(centers) // MEASURED_CLASSES)
        some, proxies, kept = vectors[::step], centers[::step], mask[::step]
        distances = torch.cdist(some.flatten(0, 1), proxies.flatten(0, 1))
        own = torch.eye(len(some), dtype=torch.bool, device=some.device)
        positive = own.repeat_interleave(some.shape[1], 0).repeat_interleave(count, 1)
        counted = kept.flatten()[:, None].expand_as(positive)
        violations = pair_violations(distances, positive, ccp.beta, ccp.alpha, counted)
        return {
            "covering_radius": float(covering_radius(vectors, centers, mask).mean()),
            "spread": spread,
            "violation_rate": violations.rate,
            "violation_bound": violations.bound,
        }

    def _pool(self, number: int, size: int | None = None) -> tuple[Tensor, Tensor]:
        # Embeddings (C, b, D) of the images of draw ``number``, and the mask of valid ones (C, b).
        classes, count, _ = self._pairs.proxies.shape
        size = size or self._config.ccp.candidates or count
        if self._config.ccp.views == "random":
            vectors = self._embed_random_views(number, size)
            return vectors, torch.ones(classes, size, dtype=torch.bool, device=vectors.device)
        pool = draw_pool(
            self._classes, classes, size, count, seed=(self._config.seed, _POOLS, number)
        )
        with self._fabric.autocast():
            # Batches of the same size as in validations: a compiled network is made for one size.
            found = embed_images(self._task.model, self._task.feed, indices=pool.indices.flatten())
        vectors = found.vectors.to(self._fabric.device).reshape(classes, size, -1)
        return vectors, pool.mask.to(vectors.device)

    @torch.no_grad()
    def _embed_random_views(self, number: int, size: int) -> Tensor:
        model, feed = self._task.model, self._task.feed
        classes = len(self._pairs.proxies)
        together = max(1, min(classes, RANDOM_VIEWS // size))
        sampler = ClassBatchSampler(feed.dataset.labels, together, size, seed=self._config.seed)
        # A pass over the classes begins at every multiple of ``classes``.
        batches: Any = feed.train_batches(sampler, start=number * classes)
        vectors = self._pairs.proxies.new_empty(classes, size, self._pairs.proxies.shape[2])
        with closing(batches), evaluating(model), self._fabric.autocast():
            for batch in islice(batches, -(-classes // together)):
                own = self._class_of[batch.labels[::size]]
                vectors[own] = model(batch.images).float().unflatten(0, (-1, size))
        # Each process has embedded all views, but results may differ by rounding.
        shared: Tensor = self._fabric.broadcast(vectors)
        return shared

    def _forget_moments(self) -> None:
        for proxies in self._pairs.proxy_parameters():
            for value in self._optimizer.state[proxies].values():
                value.zero_()
