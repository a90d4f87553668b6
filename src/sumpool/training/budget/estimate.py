"""Estimate of the duration of a run on frozen features, from a few timed images and steps."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import Tensor

from sumpool.models.backbones import run_backbone
from sumpool.models.frozen import Cut
from sumpool.report.run.labels import duration
from sumpool.system.wording import counted
from sumpool.training.config import TrainConfig
from sumpool.training.splits import Splits

#: Number of timed images, after as many for warm-up.
MEASURED = 8


def estimate_frozen(config: TrainConfig, splits: Splits, model: Cut) -> str:
    """Estimate the time for features and steps, as text.

    Decodes a few training images, passes them through the network, and runs two steps of a copy of
    the head. Stored features, evaluation and report are not considered.

    Args:
        config: The resolved configuration, with a frozen backbone.
        splits: The data.
        model: The embedder, on the CPU.
    """
    test = [] if splits.test is None else [splits.test.query, splits.test.gallery]
    evaluated = sum(len(part) for part in (splits.validation, *test) if part is not None)
    views = config.frozen_views * len(splits.train) + evaluated
    features, maps = _time_features(splits, model)
    parts = [(counted(views, "view"), views * features)]
    steps = config.stop.max_steps
    if steps is not None:
        parts.append((counted(steps, "step"), steps * _time_step(config, model, maps)))
    total = sum(seconds for _, seconds in parts)
    if config.minutes is not None:
        total = min(total, 60 * config.minutes)
    listed = ", ".join(f"{what} {duration(seconds)}" for what, seconds in parts)
    return f"about {duration(total)} ({listed})"


def _time_features(splits: Splits, model: Cut) -> tuple[float, Tensor]:
    # Seconds per view, and the feature maps of the timed images.
    view, frozen = model.learned.preprocessing, model.frozen.eval()
    for _ in range(2):  # the first pass is slower
        begun = time.monotonic()
        rows = [row % len(splits.train) for row in range(MEASURED)]
        images = [view.test_of_resized(view.resized(splits.train.load(row))) for row in rows]
        with torch.no_grad():
            maps = run_backbone(frozen, view.normalize(torch.stack(images)))
        seconds = (time.monotonic() - begun) / MEASURED
    return seconds, maps


def _time_step(config: TrainConfig, model: Cut, maps: Tensor) -> float:
    head: Any = copy.deepcopy(model.learned).train()
    batch = maps[torch.arange(config.batch_size) % len(maps)]
    if hasattr(head.pooling, "initialize_prototypes"):
        with torch.no_grad():
            head.pooling.initialize_prototypes(head.feature_map(batch))
    for _ in range(2):
        begun = time.monotonic()
        head(batch).sum().backward()
        seconds = time.monotonic() - begun
    return seconds
