"""Assembly of a run, from its configuration to the state before its first step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.fabric import Fabric

from sumpool.data import ImageDataset, ImageFeed, Preprocessing, open_feed, open_map_feed
from sumpool.data.feeds.erasing import ErasingFeed
from sumpool.evaluation import RetrievalEvaluation, evaluate_retrieval
from sumpool.models import Embedder, load
from sumpool.models.backbones import run_backbone
from sumpool.models.frozen import Cut, cut
from sumpool.models.opening import start_from
from sumpool.training.assemble import (
    build_fabric,
    build_model,
    build_task,
    build_validation,
    check_batch_norm,
    check_devices,
    check_prototypes,
)
from sumpool.training.budget.estimate import estimate_frozen
from sumpool.training.config import ConfigError, TrainConfig, with_options
from sumpool.training.settings import check_options, resolve
from sumpool.training.splits import Splits, TestSet, open_splits
from sumpool.training.task import Task
from sumpool.training.values.recipes import has_gpu

logger = logging.getLogger(__name__)


class Feeds(NamedTuple):
    """Query images, and the gallery to search among (None: the queries themselves)."""

    query: ImageFeed
    gallery: ImageFeed | None


@dataclass(frozen=True)
class Prepared(AbstractContextManager["Prepared"]):
    """A run that is ready for its first step; at the end of its ``with``, feeds are closed.

    Attributes:
        config: The resolved configuration.
        fabric: Devices and processes, launched.
        splits: The data.
        model: The embedder.
        task: The input of the trainer. With a frozen backbone its model is the rest of the
            embedder, which takes feature maps.
        selection: Images that decide which weights are kept.
        test: Test images, if they are opened before training.
        progress: Whether this process shows progress bars.
        feeds: All feeds that were opened for it.
    """

    config: TrainConfig
    fabric: Fabric
    splits: Splits
    model: Embedder
    task: Task
    selection: Feeds
    test: Feeds | None
    progress: bool
    feeds: list[ImageFeed]

    def __exit__(self, *_: object) -> None:
        for feed in self.feeds:
            feed.close()

    def evaluation_feeds(self, *, cache_test: bool) -> dict[str, Feeds]:
        """Return the images to evaluate on: selection images, then test images if there are any.

        Args:
            cache_test: Whether test images use the configured cache. Images that are read once are
                not worth caching, unless runs share the cache.
        """
        feeds: dict[str, Feeds] = {self.config.selection: self.selection}
        if self.splits.test is not None and self.config.selection != "test":
            config = self.config
            if not cache_test:
                config = replace(config, cache="none" if config.cache_dir is None else "ram")
            opened = _opener(config, self.model, self.fabric, self.progress, self.feeds)
            feeds["test"] = self.test or _open_feeds(self.splits.test, opened)
        return feeds

    def evaluate(self, images: Feeds) -> RetrievalEvaluation:
        """Evaluate the model on ``images``; every process must call this."""
        return evaluate_retrieval(
            self.task.model, *images, device=self.fabric.device, progress=self.progress
        )


def prepare(
    config: TrainConfig,
    *,
    splits: Splits | None = None,
    start: Path | None = None,
    progress: bool = False,
) -> Prepared:
    """Open the data of ``config`` and build everything a run needs.

    Args:
        config: The configuration.
        splits: The data; None opens the data set named by ``config``.
        start: Folder of the model to start from; None uses the one named by ``config``, if any.
        progress: Whether the first process shows progress bars.

    Raises:
        ConfigError: If the configuration cannot be used.
        DataError: If the data cannot be used.
    """
    check_options(config)
    fabric = build_fabric(config)
    fabric.launch()
    torch.manual_seed(config.seed)
    progress = progress and fabric.is_global_zero
    source = None
    named = config.weights
    if config.init is not None:
        source = load(start or config.init)
        config = _follow(config, source)
    elif named not in (None, "packaged", "none", "timm") and not Path(named).is_file():
        raise ConfigError(f"weights must be packaged, none, timm or a file, got {named!r}")
    if splits is None:  # last: checking many images takes long
        splits = open_splits(config, progress=progress)
    classes = int(splits.train.labels.unique().numel())
    config = resolve(config, splits.name, (len(splits.train), classes))
    check_devices(config, fabric)
    model = build_model(config, source)
    if source is not None:
        found = start_from(model, source)
        if start is None and fabric.is_global_zero:
            logger.info("weights of %s: %s", config.init, found)
    check_prototypes(model, config)
    parts = cut(model, config.learned_blocks) if config.freeze_backbone else None
    trained = model if parts is None else parts.learned
    check_batch_norm(trained, fabric)
    no_gpu = not has_gpu(config.hardware.accelerator)
    if config.recipe == "auto" and parts is not None and no_gpu and progress:
        logger.info(
            "no GPU: recipe auto trains on features of the frozen network, %s",
            estimate_frozen(config, splits, parts),
        )
    feeds: list[ImageFeed] = []
    opened = _opener(config, model, fabric, progress, feeds, parts)
    feed = opened(splits.train, views=config.frozen_views)
    if config.erasing:
        feed = ErasingFeed(feed, config.erasing)
    images = splits.test if config.selection == "test" else TestSet(splits.validation)
    assert images is not None
    selection = _open_feeds(images, opened)
    test = None
    if parts is not None and splits.test is not None and config.selection != "test":
        # Opened now, so that all features are computed and broken images found before training.
        test = _open_feeds(splits.test, opened)
    validate = build_validation(*selection, fabric)
    task = build_task(config, trained, feed, validate, fabric, data_set=splits.name)
    return Prepared(config, fabric, splits, model, task, selection, test, progress, feeds)


def _follow(config: TrainConfig, source: Embedder) -> TrainConfig:
    """Fill in options that ``config`` leaves open from ``source``, the model to start from."""
    view, own = source.preprocessing, source.config
    if config.map_init == "principal":
        raise ConfigError("map_init principal is for a map that starts anew, not for that of init")
    for name, value in (("backbone", own.backbone), ("weights", own.weights)):
        given = getattr(config, name)
        if given not in (None, value):
            raise ConfigError(
                f"{name} is {given}, but the model of init {config.init} has {value}: "
                + (f"give --backbone {value}" if name == "backbone" else "leave weights out")
            )
    inherited = {
        "weights": own.weights,
        "resize": view.resize if config.crop in (None, view.crop) else None,
        "crop": view.crop,
        "augment": view.augment,
        "flip": view.flip,
    }
    left_open = {name: it for name, it in inherited.items() if getattr(config, name) is None}
    return with_options(config, left_open)


def _open_feeds(images: TestSet, opened: Callable[..., ImageFeed]) -> Feeds:
    gallery = None if images.gallery is None else opened(images.gallery)
    return Feeds(opened(images.query), gallery)


def _opener(
    config: TrainConfig,
    model: Embedder,
    fabric: Fabric,
    progress: bool,
    feeds: list[ImageFeed],
    parts: Cut | None = None,
) -> Callable[..., ImageFeed]:
    # Returns a function that opens a feed and adds it to ``feeds``.
    how: dict[str, Any] = {"progress": progress, "parts": parts}

    def opened(dataset: ImageDataset, views: int = 1) -> ImageFeed:
        feed = build_feed(config, dataset, model.preprocessing, fabric, views=views, **how)
        feeds.append(feed)
        return feed

    return opened


def build_feed(
    config: TrainConfig,
    dataset: ImageDataset,
    preprocessing: Preprocessing,
    fabric: Fabric,
    *,
    progress: bool,
    parts: Cut | None = None,
    views: int = 1,
) -> ImageFeed:
    """Open the images of ``dataset``, or their feature maps, on the device as configured.

    Args:
        config: The options.
        dataset: The images.
        preprocessing: Preprocessing of the images.
        fabric: The device.
        progress: Whether to show progress bars.
        parts: Model with a frozen part, whose feature maps replace the images.
        views: Number of views per image whose maps are stored.
    """
    where: dict[str, Any] = {
        "cache": config.cache,
        "cache_dir": config.cache_dir,
        "device": fabric.device,
        "workers": config.hardware.workers,
        "seed": config.seed,
        "progress": progress,
    }
    if parts is None:
        return open_feed(dataset, preprocessing, **where)
    network = partial(run_backbone, parts.frozen.to(fabric.device).eval())
    if preprocessing.augment == "none" and not preprocessing.flip:
        views = 1  # all of them would be the central one
    return open_map_feed(
        dataset, preprocessing, network, identity=parts.digest, views=views, **where
    )
