"""A training of the study of proxies in the plane, and what is watched in it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sumpool.data import ImageDataset, open_feed
from sumpool.evaluation import embed_images
from sumpool.models import Embedder
from sumpool.studies.ccp_plane.setup import PlaneSettings
from sumpool.training import (
    CcpConfig,
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
)
from sumpool.training.splits import Splits
from sumpool.training.without_folder import Trained, train_in_memory


def cell_config(settings: PlaneSettings, method: str, seed: int) -> TrainConfig:
    """The training of one cell; ``method`` is "one problem" or "alternating"."""
    cache: Literal["gpu", "ram"] = "gpu" if torch.cuda.is_available() else "ram"
    return TrainConfig(
        format=settings.format,
        cache=cache,
        backbone=settings.backbone,
        weights="none",
        resize=settings.side,
        crop=settings.side,
        embedding_size=settings.embedding_size,
        pool="gap",
        loss=settings.loss,
        loss_options={"pos_margin": settings.pos_margin, "neg_margin": settings.neg_margin},
        ccp=CcpConfig(
            enabled=True,
            proxies=settings.proxies,
            candidates=settings.pool,
            problems=1 if method == "one problem" else None,
        ),
        batch_size=settings.batch_size,
        images_per_class=settings.images_per_class,
        optimizer=OptimizerConfig(lr=settings.lr),
        stop=StopConfig(
            validate_every=settings.validate_every,
            patience=settings.steps,
            max_steps=settings.steps,
        ),
        hardware=HardwareConfig(workers=0),
        seed=seed,
    )


class Watched(NamedTuple):
    """What came out of :func:`train_and_watch`.

    Attributes:
        trained: The training.
        seen: Embeddings of some training images, (n, 2), at the best step of each problem.
    """

    trained: Trained
    seen: list[NDArray[np.float32]]


def train_and_watch(config: TrainConfig, splits: Splits, shown: ImageDataset) -> Watched:
    """Train, and keep what images look like at the best step of each problem.

    Args:
        config: What to do.
        splits: The data, with a test part.
        shown: Images to embed at every validation.

    Raises:
        KeyboardInterrupt: If a signal ended it before its time.
    """
    seen: list[NDArray[np.float32]] = []

    def look(model: Embedder) -> None:
        device = next(model.parameters()).device
        feed = open_feed(shown, model.preprocessing, cache="ram", device=device, progress=False)
        seen.append(embed_images(model, feed).vectors.float().cpu().numpy())

    trained = train_in_memory(config, splits=splits, watch=look)
    every = trained.config.stop.validate_every
    assert every is not None
    best = [seen[-(-int(it["best_step"]) // every) - 1] for it in trained.problems]
    return Watched(trained, best)
