"""What the prediction study trains: the data it takes, its settings, the training of a cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sumpool.data import detect_format, open_dataset
from sumpool.training import (
    ConfigError,
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ZeroShotConfig,
)
from sumpool.training.splits import Splits, TestSet

#: Data sets by format: their name, images of a class in a batch, and how they are opened.
SOURCES: dict[str, tuple[str, int, dict[str, str]]] = {
    "cifar10": ("CIFAR-10", 8, {}),
    "cifar100": ("CIFAR-100", 4, {"labels": "coarse"}),
}


@dataclass(frozen=True)
class PredictionSettings:
    """What all cells share.

    Attributes:
        data: What it is trained on: "CIFAR-10", "CIFAR-100" (super-classes) or "stand-in".
        format: How the files are laid out, a key of ``SOURCES``.
        weights: Name of the file the backbone starts from, or "none".
        backbone: The network.
        embedding_size: Length of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ of GSP.
        zero_shot: Weight λ of the zero-shot loss where it is used.
        ridge: Ridge of the fit, in the loss and in the judgement.
        small_ridge: Ridge of a second judgement, too small to matter: it tells attributes that say
            nothing from attributes that differ too little for the ridge.
        loss: The loss beside it.
        lr: Learning rate of Adam.
        proxy_lr_multiplier: Learning rate of the proxies over that of the network. The 100 of the
            catalog belongs to fine-tuning at a rate that is as many times lower.
        steps: Training steps.
        validate_every: Steps between validations.
        batch_size: Images a step.
        held_out: Share of the training images that selects the model.
        splits: Random splits of the classes.
        per_class: Training and test images of a class that are used, the first ones; None is all.
    """

    data: str
    format: str
    weights: str = "none"
    backbone: str = "resnet20"
    embedding_size: int = 128
    prototypes: int = 8
    mu: float = 0.3
    zero_shot: float = 0.1
    ridge: float = 0.05
    small_ridge: float = 1e-6
    loss: str = "pnca"
    lr: float = 3e-4
    proxy_lr_multiplier: float = 1.0
    steps: int = 2000
    validate_every: int = 200
    batch_size: int = 64
    held_out: float = 0.1
    splits: int = 1000
    per_class: tuple[int, int] | None = None


#: What is less in the quick mode.
QUICK: dict[str, Any] = {
    "steps": 2,
    "validate_every": 2,
    "batch_size": 16,
    "splits": 100,
    "per_class": (10, 5),
}


def choose_settings(data: Path | None, quick: bool, weights: Path | None) -> PredictionSettings:
    """The settings for what is at ``data``, or for drawn images where there is none.

    Args:
        data: Folder with CIFAR-10 or CIFAR-100.
        quick: Whether to take less of everything.
        weights: File of the backbone's weights; None for random ones.

    Raises:
        ConfigError: If there is no data for a full run, or not of a kind that is known.
    """
    shared: dict[str, Any] = {"weights": "none" if weights is None else weights.name}
    if quick:
        shared |= QUICK
    if data is None:
        if not quick:
            raise ConfigError(
                "data is missing: name the folder of CIFAR-10 or CIFAR-100 with --data, or take "
                "drawn images with --quick"
            )
        return PredictionSettings("stand-in", "cifar100", **shared)
    found = detect_format(data)
    if found not in SOURCES:
        raise ConfigError(f"data must be one of {', '.join(SOURCES)}, found {found} in {data}")
    return PredictionSettings(SOURCES[found][0], found, **shared)


def open_parts(settings: PredictionSettings, data: Path, seed: int) -> Splits:
    """Images to learn from, to select by and to judge on, of the same classes.

    Args:
        settings: Which data set, and how much of it.
        data: Where it is.
        seed: Seed that draws the images to select by.
    """
    options: dict[str, Any] = dict(SOURCES[settings.format][2])
    if settings.data == "stand-in":
        options["check_counts"] = False
    learned, test = (
        open_dataset(data, settings.format, split, **options) for split in ("train", "test")
    )
    if settings.per_class is not None:
        learned, test = (
            part.subset(_first_of_each_class(part.labels, count))
            for part, count in zip((learned, test), settings.per_class, strict=True)
        )
    order = torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed))
    kept = round(settings.held_out * len(learned))
    return Splits(
        settings.format,
        learned.subset(order[kept:].sort().values),
        learned.subset(order[:kept].sort().values),
        TestSet(test),
    )


def cell_config(
    settings: PredictionSettings, cell: dict[str, Any], weights: str | None
) -> TrainConfig:
    """The training of one cell."""
    # Images are in memory already: a process that loads them would be slower.
    cache: Literal["gpu", "ram"] = "gpu" if torch.cuda.is_available() else "ram"
    return TrainConfig(
        format=settings.format,
        cache=cache,
        backbone=settings.backbone,
        weights=weights or "none",
        embedding_size=settings.embedding_size,
        pool="gsp",
        gsp=GspConfig(settings.prototypes, settings.mu, cell["eps"]),
        loss=settings.loss,
        zero_shot=ZeroShotConfig(
            weight=settings.zero_shot if cell["zero_shot"] else 0.0, ridge=settings.ridge
        ),
        batch_size=settings.batch_size,
        images_per_class=SOURCES[settings.format][1],
        optimizer=OptimizerConfig(
            lr=settings.lr,
            proxy_lr_multiplier=settings.proxy_lr_multiplier,
            warmup_epochs=0.0,
        ),
        stop=StopConfig(
            validate_every=settings.validate_every,
            patience=settings.steps,
            max_steps=settings.steps,
        ),
        hardware=HardwareConfig(workers=0),
        seed=cell["seed"],
    )


def _first_of_each_class(labels: Tensor, count: int) -> Tensor:
    firsts = [(labels == it).nonzero()[:count, 0] for it in labels.unique()]
    return torch.cat(firsts).sort().values
