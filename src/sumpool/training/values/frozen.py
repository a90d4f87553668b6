"""What goes together with a frozen backbone, and the options it sets, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sumpool.training.config import ConfigError, TrainConfig


def frozen_defaults(config: TrainConfig) -> Mapping[str, Any]:
    """Options that a frozen backbone sets, unless a user does."""
    if not config.freeze_backbone:
        return {}
    # Map and pooling, if nothing else learns, learn from scratch.
    rate = {} if config.learned_blocks else {"optimizer.lr": 1e-3}
    return {**rate, "optimizer.warmup_epochs": 0.0}


def check_frozen(config: TrainConfig) -> None:
    """Refuse options that contradict ``freeze_backbone``, or are nothing without it.

    Raises:
        ConfigError: Naming the option.
    """
    if not config.freeze_backbone:
        for name in ("frozen_views", "learned_blocks"):
            if getattr(config, name) != getattr(TrainConfig(), name):
                raise ConfigError(f"{name} has no effect without --freeze-backbone")
        return
    for wrong, option in (
        (not config.freeze_batch_norm, "freeze_batch_norm false"),
        (config.freeze_batch_norm_affine, "freeze_batch_norm_affine"),
        (config.optimizer.warmup_epochs, "optimizer.warmup_epochs"),
        (config.hardware.compile, "hardware.compile"),
        (config.erasing, "erasing"),
        (config.train_crop, "train_crop"),
    ):
        if wrong:
            raise ConfigError(
                f"{option} is for a backbone that learns: leave it or freeze_backbone out"
            )
