"""A complete run: from a configuration to a folder with a model, its metrics and a report."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning.fabric import Fabric

from sumpool.data import ImageDataset
from sumpool.evaluation import write_evaluation
from sumpool.evaluation.gallery import collect_gallery
from sumpool.models import save_embedder
from sumpool.report.run.files import read_run
from sumpool.report.run.folder import EVALUATION, GALLERY, MODEL, RUN
from sumpool.report.run.page import write_run_page
from sumpool.training.config import (
    FREE_TO_CHANGE,
    ConfigError,
    TrainConfig,
    differences,
    flat,
    with_options,
)
from sumpool.training.errors import RunError
from sumpool.training.loop import Trainer
from sumpool.training.prepare import Prepared, prepare
from sumpool.training.run_folder import RunFolder
from sumpool.training.task import Outcome

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        folder: Folder of the run.
        outcome: How training ended.
        metrics: Metrics by evaluation, "validation" (not with selection test) and, if the data has
            a test part, "test"; empty after an interrupt.
        page: The report; None after an interrupt.
    """

    folder: Path
    outcome: Outcome
    metrics: dict[str, dict[str, float]]
    page: Path | None


def run_training(
    config: TrainConfig,
    *,
    resume: Path | None = None,
    given: Collection[str] = (),
    progress: bool = True,
    validate_first: bool = True,
) -> RunResult:
    """Train and evaluate a model, and write the report.

    Args:
        config: The configuration. With ``resume``, options that differ from their defaults must be
            those of the run, or free to change.
        resume: Folder of the run to resume.
        given: With ``resume``, dotted names of options that count even if they equal their
            defaults.
        progress: Whether to show progress bars.
        validate_first: Whether to validate before the first step too, to show the gain of training.

    Raises:
        ConfigError: If the configuration cannot be used.
        RunError: If the run cannot be started or resumed.
        DataError: If the data cannot be used.
    """
    began = time.monotonic()
    if resume is not None and config.out is not None and Path(config.out) != resume:
        raise RunError(f"out is {config.out}, but {resume} is resumed where it is: leave it out")
    named = resume or (Path(config.out) if config.out is not None else None)
    start: Path | None = None
    if named is not None:  # before images are opened, which may take long
        RunFolder(named).check_free()
    if resume is not None:
        folder, stored = RunFolder.open(resume)
        config = merge(config, stored, given)
        facts = folder.facts()
        if facts.get("finished") is not None:
            if config == stored:
                return _finished(folder, facts, config)
            if not folder.checkpoints.files():
                raise RunError(
                    f"{resume} is finished and its checkpoints were removed: it cannot be trained "
                    f"longer; start a new run from its model with --init {resume}, and keep "
                    "checkpoints with --keep-checkpoints"
                )
        start = folder.checkpoints.start if folder.checkpoints.start.is_dir() else None
    elif named is not None:
        RunFolder(named).check_new()
    # Before the folder is created: an unreadable image leaves no empty run behind.
    prepared = prepare(config, start=start, progress=progress)
    path = resume or named or _free_folder(prepared.config, prepared.splits.name)
    folder = RunFolder(Path(prepared.fabric.broadcast(str(path))))
    with prepared, _held(prepared.fabric, folder):
        if resume is None:
            _begin(prepared, folder)
        else:
            _check_classes(prepared, facts)
            if prepared.fabric.is_global_zero:  # unreadable images may be skipped now
                folder.update(finished=None, **_images(prepared))
        fabric, task = prepared.fabric, prepared.task
        trainer = Trainer(fabric, task, prepared.config, folder, progress=progress)
        outcome = trainer.fit(resume=resume is not None, validate_first=validate_first, began=began)
        return _finish(prepared, folder, outcome)


@contextmanager
def _held(fabric: Fabric, folder: RunFolder) -> Iterator[None]:
    """Lock the folder of a run; if another process holds it, all processes of the run raise."""
    refusal = ""
    with ExitStack() as held:
        if fabric.is_global_zero:
            try:
                held.enter_context(folder.lock())
                folder.drop_digests()
            except RunError as error:
                refusal = str(error)
        refusal = fabric.broadcast(refusal)
        if refusal:
            raise RunError(refusal)
        yield


def _finish(prepared: Prepared, folder: RunFolder, outcome: Outcome) -> RunResult:
    fabric = prepared.fabric
    if fabric.is_global_zero:
        save_embedder(prepared.model, folder.path / MODEL)
        folder.update(steps=outcome.steps, best_step=outcome.best_step, stopped=outcome.stopped)
    fabric.barrier()
    if outcome.stopped == "interrupted":
        return RunResult(folder.path, outcome, {}, None)
    metrics = _evaluate(prepared, folder)
    page = None
    if fabric.is_global_zero:
        folder.finish()
        page = write_run_page(folder.path)
        if not prepared.config.keep_checkpoints:
            folder.checkpoints.remove()
    fabric.barrier()
    return RunResult(folder.path, outcome, metrics, page)


def _finished(folder: RunFolder, facts: dict[str, Any], config: TrainConfig) -> RunResult:
    """Return the result of a finished run, and write its report again."""
    metrics = {name: dict(found) for name, found in read_run(folder.path).evaluations.items()}
    missing = [name for name in ("stopped", "steps", "best_step") if name not in facts]
    if missing:
        raise RunError(f"{folder.path / RUN} is damaged: {', '.join(missing)} missing")
    logger.info("the run in %s is finished: nothing is left to do", folder.path)
    outcome = Outcome(facts["stopped"], facts["steps"], facts["best_step"])
    page = write_run_page(folder.path)
    if not config.keep_checkpoints:
        folder.checkpoints.remove()
    return RunResult(folder.path, outcome, metrics, page)


def merge(config: TrainConfig, stored: TrainConfig, given: Collection[str] = ()) -> TrainConfig:
    """Return the configuration of a resumed run: its own, with the permitted changes.

    Args:
        config: Options to resume with; those at their defaults do not count.
        stored: Options with which the run was started.
        given: Dotted names of options that count even if they equal their defaults.

    Raises:
        ConfigError: If ``config`` changes an option that may not change.
    """
    own, new = flat(stored), flat(config)
    for name in {**differences(config, TrainConfig()), **dict.fromkeys(given)}:
        value = new[name]
        if value == own[name]:
            continue
        # A cosine schedule depends on the last step.
        falls = name == "stop.max_steps" and stored.optimizer.schedule == "cosine"
        if name not in FREE_TO_CHANGE or falls:
            raise ConfigError(
                f"{name} is {value!r}, but the run was begun with {own[name]!r}: a resumed run "
                "keeps its options"
            )
        stored = with_options(stored, {name: value})
    return stored


def _begin(prepared: Prepared, folder: RunFolder) -> None:
    config, fabric = prepared.config, prepared.fabric
    facts = {
        "data_set": prepared.splits.name,
        "selection": config.selection,
        "seed": config.seed,
        "device": fabric.device.type,
        "processes": fabric.world_size,
        "class_digests": _class_digests(prepared),
        **_images(prepared),
    }
    if fabric.is_global_zero:
        RunFolder.create(folder.path, replace(config, out=str(folder.path)), facts)
        if config.init is not None:  # the other run may be gone on resuming
            save_embedder(prepared.model, folder.checkpoints.start)
        logger.info("the run is kept in %s", folder.path)
    fabric.barrier()


def _parts(prepared: Prepared) -> dict[str, ImageDataset]:
    splits = prepared.splits
    parts = {"train": splits.train}
    if prepared.config.selection == "validation":
        parts["validation"] = splits.validation
    if splits.test is not None:
        parts["test"] = splits.test.query
    return parts


def _class_digests(prepared: Prepared) -> dict[str, str]:
    # Of the names of the classes of each part.
    named = {
        name: "\0".join(part.class_names[label] for label in part.labels.unique().tolist())
        for name, part in _parts(prepared).items()
    }
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in named.items()}


def _check_classes(prepared: Prepared, facts: Mapping[str, Any]) -> None:
    # Other classes are split in another way: some that were trained on would validate the model.
    begun = facts.get("class_digests", {})  # earlier versions did not record them
    for name, digest in _class_digests(prepared).items():
        if begun.get(name, digest) != digest:
            raise RunError(
                f"the {name} classes in {prepared.config.data} are not those that the run began "
                "with: resume it with the same data, or start a new run from its model with --init"
            )


def _images(prepared: Prepared) -> dict[str, Any]:
    splits, parts = prepared.splits, _parts(prepared)
    classes = {name: set(part.labels.unique().tolist()) for name, part in parts.items()}
    return {
        "classes": {name: len(labels) for name, labels in classes.items()},
        "trained_classes": {
            name: len(labels & classes["train"])
            for name, labels in classes.items()
            if name != "train"
        },
        "images": {name: len(part) for name, part in parts.items()},
        "broken_images": len(splits.broken),
        "left_out": dict(splits.broken),
    }


def _free_folder(config: TrainConfig, name: str) -> Path:
    formats = ("folder", "csv", "parquet")  # these do not name the data
    if config.data is not None and name in formats:
        data = Path(config.data).resolve()
        own = data.name if data.is_dir() else data.stem
        name = re.sub(r"[^\w.-]+", "-", own).strip("-.") or name
    stem = f"{name}-{config.loss}-{config.pool}-seed{config.seed}"
    path, number = Path("runs") / stem, 2
    while path.exists():
        path, number = Path("runs") / f"{stem}-{number}", number + 1
    return path


def _evaluate(prepared: Prepared, folder: RunFolder) -> dict[str, dict[str, float]]:
    config, fabric = prepared.config, prepared.fabric
    feeds = prepared.evaluation_feeds(cache_test=False)
    shown = "test" if "test" in feeds else config.selection
    metrics = {}
    for name, images in feeds.items():
        evaluation = prepared.evaluate(images)
        metrics[name] = evaluation.metrics
        if not fabric.is_global_zero:
            continue
        gallery = None if images.gallery is None else images.gallery.dataset
        write_evaluation(folder.path / EVALUATION / name, evaluation, images.query.dataset, gallery)
        if config.gallery and name == shown:
            collect_gallery(
                prepared.task.model,
                images.query,
                evaluation.query,
                gallery_feed=images.gallery,
                gallery_embeddings=evaluation.gallery,
                folder=folder.path / GALLERY,
                source=name,
                device=fabric.device,
            )
    return metrics
