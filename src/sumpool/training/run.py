"""A whole run: from a configuration to a folder with a model, its metrics and a page."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from lightning.fabric import Fabric

from sumpool.data import ImageDataset, ImageFeed
from sumpool.evaluation import judge_images, write_judged
from sumpool.evaluation.exhibits import collect_exhibits
from sumpool.models import Embedder, save_embedder
from sumpool.report.run_page import write_run_page
from sumpool.training.assemble import (
    build_fabric,
    build_feed,
    build_model,
    build_task,
    check_batch_norm,
    check_devices,
    judge,
)
from sumpool.training.config import FREE_TO_CHANGE, ConfigError, TrainConfig, differences, flat
from sumpool.training.loop import Trainer
from sumpool.training.run_folder import EVALUATION, EXHIBITS, MODEL, RunFolder
from sumpool.training.settings import check_options, resolve
from sumpool.training.splits import Splits, TestSet, open_splits
from sumpool.training.task import Outcome

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """What came out of a run.

    Attributes:
        folder: Where everything is.
        outcome: How training ended.
        metrics: Metrics by evaluation, "validation" (not with selection test) and, where the data
            has one, "test"; empty after an interrupt.
        page: The report; None after an interrupt.
    """

    folder: Path
    outcome: Outcome
    metrics: dict[str, dict[str, float]]
    page: Path | None


def run_training(
    config: TrainConfig, *, resume: Path | None = None, progress: bool = True
) -> RunResult:
    """Train, evaluate, and write the page.

    Args:
        config: What to do. With ``resume``, options that are not at their defaults must be those of
            the run, or free to change.
        resume: Folder of a run that is to go on.
        progress: Whether to show progress bars.

    Raises:
        ConfigError: If the configuration cannot be used.
        RunError: If the run cannot be begun or continued.
        DataError: If the data cannot be used.
    """
    folder: RunFolder | None = None
    if resume is not None:
        folder, stored = RunFolder.open(resume)
        config = merge(config, stored)
    check_options(config)
    fabric = build_fabric(config)
    fabric.launch()
    torch.manual_seed(config.seed)
    shown = progress and fabric.is_global_zero
    splits = open_splits(config, progress=shown)
    config = resolve(config, splits.name)
    check_devices(config, fabric)
    model = build_model(config)
    check_batch_norm(model, fabric)
    # Feeds come before the folder: an image that cannot be read leaves no empty run behind.
    train_feed = build_feed(config, splits.train, model.preprocessing, fabric, progress=shown)
    deciding = splits.test if config.selection == "test" else TestSet(splits.validation)
    assert deciding is not None
    kept = _open_feeds(config, deciding, model, fabric, shown)
    validate = judge(kept.query, fabric, kept.gallery)
    task = build_task(config, model, train_feed, validate, fabric, data_set=splits.name)
    if folder is None:
        folder = _begin(config, splits, fabric)
    trainer = Trainer(fabric, task, config, folder, progress=progress)
    outcome = trainer.fit(resume=resume is not None)
    if fabric.is_global_zero:
        save_embedder(model, folder.path / MODEL)
        folder.update(steps=outcome.steps, best_step=outcome.best_step, stopped=outcome.stopped)
    fabric.barrier()
    if outcome.stopped == "interrupted":
        return RunResult(folder.path, outcome, {}, None)
    metrics = _judge_all(config, model, kept, splits, folder, fabric, shown)
    page = None
    if fabric.is_global_zero:
        folder.finish()
        page = write_run_page(folder.path)
    fabric.barrier()
    return RunResult(folder.path, outcome, metrics, page)


def merge(given: TrainConfig, stored: TrainConfig) -> TrainConfig:
    """The configuration under which a run goes on: its own, with what may be changed.

    Raises:
        ConfigError: If ``given`` sets an option to something else that may not be changed.
    """
    own = flat(stored)
    for name, (value, _) in differences(given, TrainConfig()).items():
        if value == own[name]:
            continue
        # Rates follow a cosine to the last step, so that it cannot be another.
        falls = name == "stop.max_steps" and stored.optimizer.schedule == "cosine"
        if name not in FREE_TO_CHANGE or falls:
            raise ConfigError(
                f"{name} is {value!r}, but the run was begun with {own[name]!r}: a resumed run "
                "keeps its options"
            )
        group, _, key = name.partition(".")
        changed = replace(getattr(stored, group), **{key: value}) if key else value
        stored = replace(stored, **{group: changed})
    return stored


def _begin(config: TrainConfig, splits: Splits, fabric: Fabric) -> RunFolder:
    parts = {"train": splits.train}
    if config.selection == "validation":
        parts["validation"] = splits.validation
    if splits.test is not None:
        parts["test"] = splits.test.query
    facts = {
        "data_set": splits.name,
        "selection": config.selection,
        "seed": config.seed,
        "device": fabric.device.type,
        "processes": fabric.world_size,
        "classes": {name: int(part.labels.unique().numel()) for name, part in parts.items()},
        "images": {name: len(part) for name, part in parts.items()},
        "broken_images": splits.broken,
    }
    path = Path(config.out) if config.out is not None else _free_folder(config, splits.name)
    path = Path(fabric.broadcast(str(path)))
    folder = RunFolder(path)
    if fabric.is_global_zero:
        folder = RunFolder.create(path, replace(config, out=str(path)), facts)
        logger.info("the run is kept in %s", path)
    fabric.barrier()
    return folder


def _free_folder(config: TrainConfig, name: str) -> Path:
    stem = f"{name}-{config.loss}-{config.pool}-seed{config.seed}"
    path, number = Path("runs") / stem, 2
    while path.exists():
        path, number = Path("runs") / f"{stem}-{number}", number + 1
    return path


class _Feeds(NamedTuple):
    query: ImageFeed
    gallery: ImageFeed | None


def _open_feeds(
    config: TrainConfig, images: TestSet, model: Embedder, fabric: Fabric, shown: bool
) -> _Feeds:
    def opened(part: ImageDataset) -> ImageFeed:
        return build_feed(config, part, model.preprocessing, fabric, progress=shown)

    gallery = None if images.gallery is None else opened(images.gallery)
    return _Feeds(opened(images.query), gallery)


def _judge_all(
    config: TrainConfig,
    model: Embedder,
    kept: _Feeds,
    splits: Splits,
    folder: RunFolder,
    fabric: Fabric,
    shown: bool,
) -> dict[str, dict[str, float]]:
    feeds: dict[str, _Feeds] = {config.selection: kept}
    if splits.test is not None and config.selection != "test":
        # Test images are seen once, so they are not worth a cache, unless other runs share it.
        once = replace(config, cache="none" if config.cache_dir is None else "ram")
        feeds["test"] = _open_feeds(once, splits.test, model, fabric, shown)
    metrics = {}
    for name, (query_feed, gallery_feed) in feeds.items():
        # All processes take part in embedding; what follows is done by the first.
        judged = judge_images(model, query_feed, gallery_feed, device=fabric.device, progress=shown)
        metrics[name] = judged.metrics
        if fabric.is_global_zero:
            write_judged(
                folder.path / EVALUATION / name,
                judged,
                query_feed.dataset,
                None if gallery_feed is None else gallery_feed.dataset,
            )
    if config.exhibits and fabric.is_global_zero:
        collect_exhibits(
            model,
            query_feed,
            judged.query,
            gallery_feed=gallery_feed,
            gallery_embeddings=judged.gallery,
            folder=folder.path / EXHIBITS,
            source=name,
            device=fabric.device,
        )
    for pair in feeds.values():
        for feed in pair:
            if feed is not None:
                feed.close()
    return metrics
