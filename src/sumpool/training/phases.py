"""Initialization before the first step of a run, and the steps at which its phases change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from sumpool.data import Batch
from sumpool.losses import LOSSES, Mixture
from sumpool.models.head import keep_principal_axes, single_map
from sumpool.training.config import TrainConfig
from sumpool.training.errors import RunError
from sumpool.training.gradient_balance import measure_gradient_norms
from sumpool.training.step import gather
from sumpool.training.task import Task

logger = logging.getLogger(__name__)

#: Number of images on which ε is fitted to a given spread.
SPREAD_IMAGES = 256
#: Relative differences of attributes below this are rounding errors.
SAME = 1e-5
#: Maximum number of images for the principal axes of the map.
PRINCIPAL_IMAGES = 2048


class Phases:
    """Phases of a run: warm-up, average pooling before prototypes, use of the zero-shot loss.

    Args:
        fabric: The processes of the run.
        task: The task; its model and loss are on the device.
        config: The resolved configuration.
        class_of: ``task.class_of`` on the device.

    Attributes:
        warmup: Number of steps in which the backbone is not trained.
        zero_shot_weight: λ while the zero-shot loss counts; part of a checkpoint, since
            ``zero_shot.balance`` sets it from the first batch.
    """

    def __init__(self, fabric: Fabric, task: Task, config: TrainConfig, class_of: Tensor) -> None:
        self._fabric, self._task, self._config, self._class_of = fabric, task, config, class_of
        self.warmup = warmup_steps(config, len(task.feed.dataset))
        self.zero_shot_weight = config.zero_shot.weight or 0.0
        model: Any = task.model
        self._model = model
        self._feature_map: Callable[[Tensor], Tensor] = model.feature_map
        self._embed: Callable[[Tensor], Tensor] = model.embedding
        if LOSSES[config.loss].raw:
            self._embed = partial(model.embedding, normalize=False)
        self._pooling: Any = model.pooling

    @torch.no_grad()
    def begin(self, batch: Batch, step: int) -> None:
        """Initialize map, prototypes and balance, before the first step of this process.

        Args:
            batch: The batch of that step.
            step: Its number; more than 0 in a resumed run.
        """
        if step == 0 and self._config.map_init == "principal":
            self._turn_map()
        if self._config.gsp.average_steps:  # prototypes are picked on entering that step
            self._pooling.averaging = step < self._config.gsp.average_steps
        else:
            self._initialize_pooling(batch, step)
        if step == 0 and self._config.zero_shot.balance is not None:
            self._balance(batch, self._config.zero_shot.balance)

    def enter(self, step: int) -> bool:
        """Set up step number ``step``; return whether it is the first of a phase."""
        criterion, zero_shot = self._task.criterion, self._config.zero_shot
        average = self._config.gsp.average_steps
        if isinstance(criterion, Mixture):
            ended = zero_shot.end is not None and step >= zero_shot.end
            # While the pooling averages, it has no prototypes: attributes are meaningless.
            counts = step >= max(zero_shot.begin, average) and not ended
            criterion.weight = self.zero_shot_weight if counts else 0.0
        if average:
            self._pooling.averaging = step < average
            if step == average:
                self._pick_prototypes(step)
        return step in (self.warmup, zero_shot.begin, zero_shot.end, average)

    def resting(self, step: int, backbone: list[nn.Parameter]) -> list[nn.Parameter]:
        """Return the parameters that step number ``step`` must not change."""
        found = list(backbone) if step < self.warmup else []
        if step < self._config.gsp.average_steps:
            # Average pooling does not use them, but weight decay would change them.
            # The map of a combination is trained from the first step on.
            found += list(getattr(self._pooling, "gsp", self._pooling).parameters())
        return found

    def _initialize_pooling(self, batch: Batch, step: int) -> None:
        # All processes pick the prototypes from the features of the whole first batch, so that the
        # run does not depend on their number; before the first step, and outside of compiled or
        # recorded code.
        pooling = self._pooling
        if not hasattr(pooling, "initialize_prototypes") or bool(pooling.prototypes_ready):
            return
        if self._config.gsp.init == "image":
            self._pick_prototypes(step)
            return
        features = self._feature_map(batch.images).float()
        pooling.initialize_prototypes(gather(self._fabric, features, gradients=False))
        self._sharpen(step)

    def _turn_map(self) -> None:
        # To the axes of its inputs: pooled features, or mean features if it precedes the pooling.
        pooling, model = self._pooling, self._model
        images = min(PRINCIPAL_IMAGES, len(self._task.feed.dataset))
        seen = [
            pooling(maps) if pooling.linear_map == "after" else pooling.to_tokens(maps)[0].mean(1)
            for maps in self._maps(0, images, model.backbone_map)
        ]
        layer = single_map(model.map, pooling)
        assert layer is not None  # checked when the model was built
        keep_principal_axes(layer, torch.cat(seen))

    def _balance(self, batch: Batch, ratio: float) -> None:
        criterion = self._task.criterion
        assert isinstance(criterion, Mixture)
        features = self._feature_map(batch.images)
        norms = measure_gradient_norms(
            self._pooling, criterion, features, self._class_of[batch.labels], embed=self._embed
        )
        if not norms.base:
            raise RunError(
                "zero_shot.balance needs a base loss with a gradient, but it is flat on the first "
                "batch: give zero_shot.weight instead, or another seed"
            )
        with torch.no_grad():
            attributes = self._pooling.pool(features.float()).attributes
        apart = (attributes.amax(0) - attributes.amin(0)).max()
        if not norms.zero_shot or apart <= SAME * attributes.abs().max():
            raise RunError(
                "zero_shot.balance needs a zero-shot loss with a gradient, but it is flat on the "
                "first batch: the attributes of all images are the same, or do not depend on small "
                "changes of the features; give other gsp.prototypes or another gsp.eps"
            )
        self.zero_shot_weight = norms.weight(ratio)
        logger.info("the weight of the zero-shot loss is set to %.3g", self.zero_shot_weight)

    @torch.no_grad()
    def _pick_prototypes(self, step: int) -> None:
        # Among average-pooled embeddings of images, four candidates per prototype.
        pooling = self._pooling
        wanted = 4 * len(pooling.prototypes)
        found = [pooling.averages(maps) for maps in self._maps(step, wanted)]
        pooling.initialize_prototypes_among(torch.cat(found))
        self._sharpen(step)

    def _sharpen(self, step: int) -> None:
        if self._config.gsp.spread is None:
            return
        self._pooling.sharpen(torch.cat(list(self._maps(step, SPREAD_IMAGES))))
        logger.info("ε is set to %.4g", float(self._pooling.eps))

    def _maps(
        self, step: int, images: int, run: Callable[[Tensor], Tensor] | None = None
    ) -> Iterator[Tensor]:
        # Feature maps of at least ``images`` images, of all processes. A separate iterator keeps
        # the batches of training unchanged.
        run = run or self._feature_map
        batches = self._task.feed.train_batches(self._task.sampler, start=step)
        try:
            for _ in range(math.ceil(images / self._config.batch_size)):
                features = run(next(batches).images).float()
                yield gather(self._fabric, features, gradients=False)
        finally:
            batches.close()  # type: ignore[attr-defined]


def warmup_steps(config: TrainConfig, images: int) -> int:
    """Return the steps of the warm-up: ``warmup_epochs`` passes over ``images`` images."""
    epochs = config.optimizer.warmup_epochs or 0.0
    return math.ceil(epochs * images / config.batch_size)
