"""Settings, data and cell configurations of the study of average pooling.

Embeddings have two dimensions, so that local features can be plotted. On the unit circle they would
have only one, and all local features of a class would lie on a ray. Embeddings are therefore
normalized into the unit ball, v / max(1, ‖v‖), and compared by distance with C2. ProxyNCA++
compares only angles, and in two dimensions it stays at chance from random weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sumpool.data import GlyphCollages, ImageDataset
from sumpool.studies.shared.cifar import (
    SOURCES,
    find_format,
    identify_weights,
    in_memory,
    open_cifar,
)
from sumpool.training import ConfigError, GspConfig, OptimizerConfig, TrainConfig, ZeroShotConfig
from sumpool.training.splits import Splits, TestSet

#: Number of letters, the classes of the glyph collages.
LETTERS = 10


@dataclass(frozen=True)
class AveragingSettings:
    """Settings shared by all cells."""

    data: str  #: Training data: "glyphs", "CIFAR-10" or "CIFAR-100" (super-classes)
    format: str  #: Format of the data
    weights: str = "none"  #: Name and digest of the initial backbone weights, or "none"
    backbone: str = "small_cnn"
    prototypes: int = 48  #: Prototypes of the analysis, picked among local features
    images: int = 64  #: Images analyzed per class
    #: Share of a class's histogram above which a prototype is a main prototype of the class.
    main_share: float = 0.01
    embedding_size: int = 2  #: Length of local features and embeddings
    pos_margin: float = 0.0  #: Margin m⁺ of C2
    #: Margin m⁻ of C2. Ten classes at this distance from each other fit into the unit disk.
    neg_margin: float = 0.5
    gsp_prototypes: int = 16  #: Prototypes m of GSP
    mu: float = 0.5  #: Share μ of GSP
    eps: float = 5.0  #: Inverse smoothing ε of GSP
    average_steps: int = 250  #: Steps of average pooling before GSP picks its prototypes
    lr: float = 6e-3
    steps: int = 500
    validate_every: int = 100
    batch_size: int = 40
    images_per_class: int = 4  #: Images per class in a batch
    #: Training, validation and test collages to draw per class; None for CIFAR.
    drawn: tuple[int, int, int] | None = (200, 20, 64)
    #: Maximum training and test images per class of CIFAR; None uses all.
    per_class: tuple[int, int] | None = None


def choose_settings(data: Path | None, quick: bool, weights: Path | None) -> AveragingSettings:
    """Return the settings for CIFAR-10 or CIFAR-100 in ``data``, or for glyph collages if None.

    Raises:
        ConfigError: If the data has another format, or weights are given for glyphs.
        ModelError: If the weights cannot be read.
    """
    few: dict[str, Any] = {"steps": 4, "validate_every": 4, "average_steps": 2, "images": 8}
    if data is None:
        if weights is not None:
            raise ConfigError(f"weights must be left out on glyphs, got {weights}")
        less = {**few, "drawn": (8, 4, 8)} if quick else {}
        return AveragingSettings("glyphs", "glyphs", **less)
    found = find_format(data, SOURCES)
    name, images_per_class, _ = SOURCES[found]
    shared: dict[str, Any] = {
        "weights": identify_weights(weights, "resnet20"),
        "backbone": "resnet20",
        "drawn": None,
        "batch_size": 64,
        "images_per_class": images_per_class,
        # A higher rate would harm pretrained features.
        "lr": 1e-3 if weights is None else 3e-4,
        "steps": 2000,
        "validate_every": 200,
        "average_steps": 1000,
    }
    if quick:
        shared |= few | {"batch_size": 16, "per_class": (10, 8)}
    return AveragingSettings(name, found, **shared)


def open_parts(settings: AveragingSettings, data: Path | None, seed: int) -> Splits:
    """Open training, validation and test images of the same classes.

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
    # Any letters will do; the validation split has few classes and is drawn fastest.
    drawn = GlyphCollages(split="validation", images_per_class=count, seed=seed)
    letters = drawn.labels.unique()[:LETTERS]
    return drawn.subset(torch.isin(drawn.labels, letters).nonzero()[:, 0])


def cell_config(
    settings: AveragingSettings, cell: dict[str, Any], weights: Path | None
) -> TrainConfig:
    """Return the configuration of one cell."""
    gsp = GspConfig()
    if cell["pool"] == "gsp":
        gsp = GspConfig(settings.gsp_prototypes, settings.mu, settings.eps, settings.average_steps)
    return TrainConfig(
        format=settings.format,
        backbone=settings.backbone,
        weights=str(weights or "none"),
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
