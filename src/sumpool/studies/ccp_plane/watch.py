"""Runs of the study of proxies in the plane, which record embeddings during training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sumpool.data import ImageDataset
from sumpool.evaluation import embed_images
from sumpool.models import Embedder
from sumpool.studies.ccp_plane.setup import PlaneSettings
from sumpool.studies.shared.ccp import with_method
from sumpool.studies.shared.cifar import in_memory
from sumpool.studies.shared.measuring import open_images
from sumpool.training import OptimizerConfig, TrainConfig
from sumpool.training.splits import Splits
from sumpool.training.without_folder import Trained, train_in_memory


def cell_config(settings: PlaneSettings, method: str, seed: int) -> TrainConfig:
    """Return the configuration of a cell; ``method`` is one of those of :func:`with_method`."""
    config = TrainConfig(
        format=settings.format,
        backbone=settings.backbone,
        weights="none",
        resize=settings.side,
        crop=settings.side,
        embedding_size=settings.embedding_size,
        pool="gap",
        loss=settings.loss,
        loss_options={"pos_margin": settings.pos_margin, "neg_margin": settings.neg_margin},
        normalize="ball",
        batch_size=settings.batch_size,
        images_per_class=settings.images_per_class,
        optimizer=OptimizerConfig(lr=settings.lr),
        seed=seed,
        **in_memory(settings.steps, settings.validate_every),
    )
    # The best step is the one that figures show.
    return with_method(
        config, method, proxies=settings.proxies, candidates=settings.pool, solution="best"
    )


class Watched(NamedTuple):
    """Result of :func:`train_and_watch`."""

    trained: Trained
    #: Embeddings of some training images, (n, 2), at the best step of each problem.
    seen: list[NDArray[np.float32]]


def train_and_watch(config: TrainConfig, splits: Splits, shown: ImageDataset) -> Watched:
    """Train and record the embeddings of ``shown`` at the best step of each problem."""
    seen: list[NDArray[np.float32]] = []

    def look(model: Embedder) -> None:
        feed = open_images(model, shown)
        seen.append(embed_images(model, feed).vectors.float().cpu().numpy())

    trained = train_in_memory(config, splits=splits, watch=look)
    every = trained.config.stop.validate_every
    assert every is not None
    best = [seen[-(-int(it["best_step"]) // every) - 1] for it in trained.problems]
    return Watched(trained, best)
