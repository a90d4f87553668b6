"""Settings, data and cell configurations of the prediction study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sumpool.studies.shared.cifar import (
    SOURCES,
    find_format,
    identify_weights,
    in_memory,
    open_cifar,
)
from sumpool.training import ConfigError, GspConfig, OptimizerConfig, TrainConfig, ZeroShotConfig
from sumpool.training.splits import Splits


@dataclass(frozen=True)
class PredictionSettings:
    """Settings shared by all cells."""

    data: str  #: Training data: "CIFAR-10", "CIFAR-100" (super-classes) or "stand-in"
    format: str  #: Format of the data, a key of ``SOURCES``
    weights: str = "none"  #: Name and digest of the initial backbone weights, or "none"
    backbone: str = "resnet20"
    embedding_size: int = 128
    prototypes: int = 8  #: Number m of prototypes
    mu: float = 0.3  #: Share μ of GSP
    zero_shot: float = 0.1  #: Weight λ of the zero-shot loss, if used
    ridge: float = 0.05  #: Ridge of the fit, in the loss and in the evaluation
    #: Negligible ridge of a second evaluation: it distinguishes uninformative attributes from
    #: attributes that differ too little for the ridge.
    small_ridge: float = 1e-6
    loss: str = "pnca"
    lr: float = 3e-4
    #: Learning rate of the proxies relative to that of the network. The catalog's 100 is meant for
    #: fine-tuning at a rate 100 times lower.
    proxy_lr_multiplier: float = 1.0
    steps: int = 2000
    validate_every: int = 200
    batch_size: int = 64
    held_out: float = 0.1  #: Share of the training images used for validation
    splits: int = 1000  #: Random splits of the classes
    #: Number of training and test images used per class, the first ones; None uses all.
    per_class: tuple[int, int] | None = None


#: Reduced settings for quick mode.
QUICK: dict[str, Any] = {
    "steps": 2,
    "validate_every": 2,
    "batch_size": 16,
    "splits": 100,
    "per_class": (10, 5),
}


def choose_settings(data: Path | None, quick: bool, weights: Path | None) -> PredictionSettings:
    """Return the settings for CIFAR-10 or CIFAR-100 in ``data``, or for a stand-in if None.

    Raises:
        ConfigError: If a full run has no data, or the data has another format.
        ModelError: If the weights cannot be read.
    """
    shared: dict[str, Any] = {"weights": identify_weights(weights, PredictionSettings.backbone)}
    if quick:
        shared |= QUICK
    if data is None:
        if not quick:
            raise ConfigError(
                "data is missing: name the folder of CIFAR-10 or CIFAR-100 with --data, or take "
                "drawn images with --quick"
            )
        return PredictionSettings("stand-in", "cifar100", **shared)
    found = find_format(data, SOURCES)
    return PredictionSettings(SOURCES[found].name, found, **shared)


def open_parts(settings: PredictionSettings, data: Path, seed: int) -> Splits:
    """Open training, validation (drawn with ``seed``) and test images of the same classes."""
    return open_cifar(
        data,
        settings.format,
        seed,
        held_out=settings.held_out,
        per_class=settings.per_class,
        check_counts=settings.data != "stand-in",
    )


def cell_config(
    settings: PredictionSettings, cell: dict[str, Any], weights: Path | None
) -> TrainConfig:
    """Return the configuration of one cell."""
    return TrainConfig(
        format=settings.format,
        backbone=settings.backbone,
        weights=str(weights or "none"),
        embedding_size=settings.embedding_size,
        pool="gsp",
        gsp=GspConfig(settings.prototypes, settings.mu, cell["eps"]),
        loss=settings.loss,
        zero_shot=ZeroShotConfig(
            weight=settings.zero_shot if cell["zero_shot"] else 0.0, ridge=settings.ridge
        ),
        batch_size=settings.batch_size,
        images_per_class=SOURCES[settings.format].images_per_class,
        optimizer=OptimizerConfig(
            lr=settings.lr, proxy_lr_multiplier=settings.proxy_lr_multiplier, warmup_epochs=0.0
        ),
        seed=cell["seed"],
        **in_memory(settings.steps, settings.validate_every),
    )
