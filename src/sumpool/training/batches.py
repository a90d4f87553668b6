"""Composition of batches: several images of each of a few classes, or random images."""

from __future__ import annotations

import torch
from lightning.fabric import Fabric
from torch import Tensor

from sumpool.data import ClassBatchSampler, ImageDataset, check_class_sizes
from sumpool.losses import LOSSES
from sumpool.training.config import ConfigError, TrainConfig

#: Accepted probability, per batch, of a batch that the loss cannot use.
RARE = 1e-9


def build_sampler(
    config: TrainConfig, dataset: ImageDataset, classes: int, fabric: Fabric
) -> ClassBatchSampler:
    """Build the batch sampler of a resolved ``config`` for ``dataset`` with ``classes`` classes.

    Raises:
        DataError: If a class has a single image, and batches have several of a class.
        ConfigError: If there are fewer classes or images than a batch needs, or if random batches
            may lack what the loss needs.
    """
    per_class, labels = config.images_per_class, dataset.labels
    assert per_class is not None
    if per_class == 0:
        _check_random_batches(config, labels, classes)
        # Every image is treated as a class of its own.
        per_class, labels = 1, torch.arange(len(labels))
    else:
        _check_classes(config, dataset, classes, per_class)
    if config.ccp.enabled and config.ccp.views == "random":
        check_class_sizes(dataset, minimum=2)  # pools have several images of every class
    return ClassBatchSampler(
        labels,
        config.batch_size // per_class,
        per_class,
        seed=config.seed,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        class_names=dataset.class_names,
    )


def _check_classes(
    config: TrainConfig, dataset: ImageDataset, classes: int, per_class: int
) -> None:
    if per_class > 1:
        check_class_sizes(dataset, minimum=2)
    wanted = config.batch_size // per_class
    if wanted > classes:
        are_left = "class is left" if classes == 1 else "classes are left"
        raise ConfigError(
            f"{classes} {are_left} to learn from, but a batch of batch_size {config.batch_size} "
            f"with images_per_class {per_class} needs {wanted}: give --batch-size "
            f"{classes * per_class} or less"
        )


def _check_random_batches(config: TrainConfig, labels: Tensor, classes: int) -> None:
    count, size = len(labels), config.batch_size
    if size > count:
        raise ConfigError(
            f"{count} images are left to learn from, but a batch has batch_size {size}: give "
            f"--batch-size {count} or less"
        )
    own = labels.unique(return_counts=True)[1].double()
    alike = float((own * (own - 1)).sum()) / max(1, count * (count - 1))
    pairs = alike * size * (size - 1) / 2
    if pairs < 1 and not LOSSES[config.loss].proxy and not config.ccp.enabled:
        raise ConfigError(
            f"loss {config.loss} compares images of a class, but a batch of {size} random images "
            f"of {classes} classes holds {pairs:.1g} pairs on average: give --images-per-class 2 "
            "or more, or a larger --batch-size"
        )
    drawn = torch.arange(size)
    one_class = float(((own[:, None] - drawn).clamp(min=0) / (count - drawn)).prod(1).sum())
    if one_class > RARE and config.zero_shot.weight:
        raise ConfigError(
            f"the zero-shot loss needs at least two classes per batch, but {size} random images of "
            f"{classes} classes may be of one: give --images-per-class 1 or more, or a larger "
            "--batch-size"
        )
