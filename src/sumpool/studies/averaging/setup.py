"""The settings of the study of average pooling, its data, and the configuration of a cell.

Embeddings have two dimensions, so that local features can be looked at. On the unit circle they
would have one, and all local features of a class would lie on a ray; so embeddings are brought into
the unit ball, v / max(1, ‖v‖), and C2 compares them by distance. ProxyNCA++ compares angles alone,
and in two dimensions it stays at chance from random weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sumpool.data import GlyphCollages, ImageDataset
from sumpool.studies.shared.cifar import SOURCES, find_format, in_memory, open_cifar
from sumpool.training import ConfigError, GspConfig, OptimizerConfig, TrainConfig, ZeroShotConfig
from sumpool.training.splits import Splits, TestSet

#: Number of letters among the drawn collages.
LETTERS = 10


@dataclass(frozen=True)
class AveragingSettings:
    """What all cells share."""

    data: str  #: What it is trained on: "glyphs", "CIFAR-10" or "CIFAR-100" (super-classes)
    format: str  #: How the data is laid out
    weights: str = "none"  #: Name of the file the backbone starts from, or "none"
    backbone: str = "small_cnn"
    prototypes: int = 48  #: Prototypes of the analysis, picked among local features
    images: int = 64  #: Images of a class that are analyzed
    #: Share of a class's histogram above which a prototype is a main one of it.
    main_share: float = 0.01
    embedding_size: int = 2  #: Length of local features and embeddings
    pos_margin: float = 0.0  #: Margin m⁺ of C2
    #: Margin m⁻ of C2. Ten classes that far from each other fit into the unit disc.
    neg_margin: float = 0.5
    gsp_prototypes: int = 16  #: Prototypes m of GSP
    mu: float = 0.5  #: Share μ of GSP
    eps: float = 5.0  #: Inverse smoothing ε of GSP
    average_steps: int = 250  #: Steps in which GSP averages before it picks its prototypes
    lr: float = 6e-3
    steps: int = 500
    validate_every: int = 100
    batch_size: int = 40
    images_per_class: int = 4  #: Images of a class in a batch
    #: Training, validation and test images of a class that are drawn.
    drawn: tuple[int, int, int] | None = (200, 20, 64)
    #: Training and test images of a class of CIFAR; None is all.
    per_class: tuple[int, int] | None = None


def choose_settings(data: Path | None, quick: bool, weights: Path | None) -> AveragingSettings:
    """The settings for CIFAR-10 or CIFAR-100 in ``data``, or for drawn collages without it.

    Raises:
        ConfigError: If the data is of another kind, or weights are given for glyphs.
    """
    few: dict[str, Any] = {"steps": 4, "validate_every": 4, "average_steps": 2, "images": 8}
    if data is None:
        if weights is not None:
            raise ConfigError(f"weights must be left out on glyphs, got {weights}")
        less = {**few, "drawn": (8, 4, 8)} if quick else {}
        return AveragingSettings("glyphs", "glyphs", **less)
    found = find_format(data)
    name, images_per_class, _ = SOURCES[found]
    shared: dict[str, Any] = {
        "weights": "none" if weights is None else weights.name,
        "backbone": "resnet20",
        "drawn": None,
        "batch_size": 64,
        "images_per_class": images_per_class,
        # Pretrained features suffer at a higher rate.
        "lr": 1e-3 if weights is None else 3e-4,
        "steps": 2000,
        "validate_every": 200,
        "average_steps": 1000,
    }
    if quick:
        shared |= few | {"batch_size": 16, "per_class": (10, 8)}
    return AveragingSettings(name, found, **shared)


def open_parts(settings: AveragingSettings, data: Path | None, seed: int) -> Splits:
    """Training, validation and test images of the same classes.

    ``seed`` draws the collages, or the validation images of the data set in ``data``.
    """
    if settings.drawn is not None:
        train, kept, test = (
            _collages(count, 3 * seed + part) for part, count in enumerate(settings.drawn)
        )
        return Splits(settings.format, train, kept, TestSet(test))
    assert data is not None
    return open_cifar(data, settings.format, seed, per_class=settings.per_class)


def _collages(count: int, seed: int) -> ImageDataset:
    # Which letters is of no matter, and the split of few classes is drawn soonest.
    drawn = GlyphCollages(split="validation", images_per_class=count, seed=seed)
    letters = drawn.labels.unique()[:LETTERS]
    return drawn.subset(torch.isin(drawn.labels, letters).nonzero()[:, 0])


def cell_config(
    settings: AveragingSettings, cell: dict[str, Any], weights: str | None
) -> TrainConfig:
    """The configuration of one cell."""
    gsp = GspConfig()
    if cell["pool"] == "gsp":
        gsp = GspConfig(settings.gsp_prototypes, settings.mu, settings.eps, settings.average_steps)
    return TrainConfig(
        format=settings.format,
        backbone=settings.backbone,
        weights=weights or "none",
        embedding_size=settings.embedding_size,
        normalize="ball",
        pool=cell["pool"],
        gsp=gsp,
        loss=cell["loss"],
        loss_options={"pos_margin": settings.pos_margin, "neg_margin": settings.neg_margin},
        zero_shot=ZeroShotConfig(weight=0.0),
        batch_size=settings.batch_size,
        images_per_class=settings.images_per_class,
        optimizer=OptimizerConfig(lr=settings.lr, warmup_epochs=0.0),
        seed=cell["seed"],
        **in_memory(settings.steps, settings.validate_every),
    )
