"""Bounds of numeric options, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sumpool.training.config import ConfigError

#: A requirement for numbers, its bounds, and the options it applies to unless they are null.
Limits = tuple[tuple[str, float, float, tuple[str, ...]], ...]

#: Limits of training.
LIMITS: Limits = (
    (
        "be positive",
        math.ulp(0),
        math.inf,
        (
            *("batch_size", "embedding_size", "optimizer.lr"),
            *("stop.validate_every", "stop.patience", "stop.max_steps"),
            *("ccp.proxies", "ccp.patience", "ccp.problems", "ccp.alpha", "center.subset"),
            *("gsp.prototypes", "gsp.eps", "zero_shot.balance", "zero_shot.ridge"),
            *("zero_shot.scale", "zero_shot.lr_multiplier", "gsp.lr_multiplier", "minutes"),
        ),
    ),
    (
        "be at least 0",
        0,
        math.inf,
        (
            *("seed", "hardware.workers", "gsp.average_steps", "optimizer.warmup_epochs"),
            *("images_per_class", "ccp.pull", "ccp.batch_weight", "center.weight"),
            *("optimizer.plateau_patience", "checkpoint_seconds"),
        ),
    ),
    ("be at least 1", 1, math.inf, ("hardware.devices", "hardware.nodes")),
    ("be at least 2", 2, math.inf, ("folds",)),
    ("lie in 0..2⁶³ − 1", -math.inf, 2**63 - 1, ("seed",)),
    (
        "lie in [0, 1)",
        0,
        math.nextafter(1, 0),
        ("optimizer.beta1", "optimizer.beta2", "optimizer.start_share", "center.momentum"),
    ),
    (
        "lie in (0, 1)",
        math.ulp(0),
        math.nextafter(1, 0),
        (
            *("optimizer.plateau_factor", "optimizer.restart_factor", "optimizer.ema"),
            *("validation", "gsp.spread"),
        ),
    ),
    ("lie in (0, 1]", math.ulp(0), 1, ("gsp.mu",)),
    ("lie in [0, 1]", 0, 1, ("erasing", "zero_shot.weight", "gsp.mix")),
    ("be at most 10", -math.inf, 10, ("optimizer.lr",)),
    ("lie in [0, 10]", 0, 10, ("optimizer.weight_decay",)),
    (
        "lie in 0..1,000,000",
        0,
        1e6,
        ("optimizer.embedding_lr_multiplier", "optimizer.proxy_lr_multiplier"),
    ),
    (
        "be at most 1,000,000",
        -math.inf,
        1e6,
        (
            *("optimizer.warmup_epochs", "zero_shot.scale", "zero_shot.lr_multiplier", "minutes"),
            *("zero_shot.balance", "zero_shot.ridge", "gsp.eps"),
            *("ccp.pull", "ccp.batch_weight", "center.weight"),
        ),
    ),
    (
        "be at most 65,536",
        -math.inf,
        2**16,
        (
            *("batch_size", "images_per_class", "embedding_size", "gsp.prototypes"),
            *("ccp.proxies", "ccp.candidates"),
        ),
    ),
    ("lie in 1..4,096", 1, 4096, ("resize",)),
    ("lie in 1..2,048", 1, 2048, ("crop", "train_crop")),
    ("lie in 1..1,024", 1, 1024, ("frozen_views",)),
    ("lie in 0..1,024", 0, 1024, ("learned_blocks",)),
    ("be at most 10,000", -math.inf, 10_000, ("folds",)),
    (
        "be at most 1,024",
        -math.inf,
        1024,
        ("hardware.workers", "hardware.devices", "hardware.nodes"),
    ),
    (
        "be at most 10¹²",
        -math.inf,
        10**12,
        (
            *("stop.validate_every", "stop.patience", "stop.max_steps", "gsp.average_steps"),
            *("zero_shot.begin", "zero_shot.end", "center.subset", "ccp.patience", "ccp.problems"),
            *("optimizer.plateau_patience", "checkpoint_seconds"),
        ),
    ),
)

#: Limits of pretraining.
PRETRAINING: Limits = (
    ("lie in 0..2⁶³ − 1", 0, 2**63 - 1, ("seed",)),
    ("lie in 1..1,000,000", 1, 10**6, ("epochs",)),
    ("lie in 1..65,536", 1, 2**16, ("batch_size",)),
    ("be positive and at most 10", math.ulp(0), 10, ("lr",)),
    ("lie in [0, 10]", 0, 10, ("weight_decay",)),
)


def check_limits(options: Mapping[str, Any], limits: Limits = LIMITS) -> None:
    """Refuse numbers that are not finite or out of bounds.

    Args:
        options: Values by dotted name, as returned by :func:`sumpool.training.config.flat`.
        limits: Their bounds.

    Raises:
        ConfigError: If there is one; names the option and its bounds.
    """
    for name, value in options.items():
        for number in value.values() if isinstance(value, dict) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ConfigError(f"{name} must be finite, got {number}")
    for must, low, high, names in limits:
        for name in names:
            value = options[name]
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} must {must}, got {value}")
