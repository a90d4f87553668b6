"""Options that a frozen backbone sets, and options that it excludes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sumpool.training.config import ConfigError, TrainConfig


def frozen_defaults(config: TrainConfig) -> Mapping[str, Any]:
    """Return the options that a frozen backbone sets unless a user does."""
    if not config.freeze_backbone:
        return {}
    # If only map and pooling are trained, they start from scratch.
    rate = {} if config.learned_blocks else {"optimizer.lr": 1e-3}
    return {**rate, "optimizer.warmup_epochs": 0.0}


def check_frozen(config: TrainConfig) -> None:
    """Refuse options that contradict ``freeze_backbone``, or have no effect without it.

    Raises:
        ConfigError: If there is one; names it.
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
