"""CIFAR-10 and CIFAR-100 for studies whose training, validation and test images share classes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from sumpool.data import detect_format, open_dataset
from sumpool.data.splits import first_of_each_class
from sumpool.models.backbones import build_backbone
from sumpool.system.digests import file_sha256
from sumpool.training import ConfigError, HardwareConfig, StopConfig
from sumpool.training.splits import Splits, TestSet


class Source(NamedTuple):
    """A data set: its name, images per class in a batch, and options for opening it."""

    name: str
    images_per_class: int
    options: dict[str, str]


#: Data sets by format; CIFAR-100 is labeled by super-class.
SOURCES = {
    "cifar10": Source("CIFAR-10", 8, {}),
    "cifar100": Source("CIFAR-100", 4, {"labels": "coarse"}),
}


def find_format(data: Path, formats: Collection[str]) -> str:
    """Return the format of ``data``; raise ConfigError if it is not one of ``formats``."""
    found = detect_format(data)
    if found not in formats:
        raise ConfigError(f"data must be one of {', '.join(formats)}, found {found} in {data}")
    return found


def identify_weights(weights: Path | None, backbone: str) -> str:
    """Return name and digest of a file of weights, "none" without one.

    Raises:
        ModelError: If the file is missing, or is not one of ``backbone``.
    """
    if weights is None:
        return "none"
    build_backbone(backbone, weights=str(weights))
    return f"{weights.name} {file_sha256(weights)[:12]}"


def open_cifar(
    data: Path,
    format: str,
    seed: int,
    *,
    held_out: float = 0.1,
    per_class: tuple[int, int] | None = None,
    check_counts: bool = True,
) -> Splits:
    """Open training, validation and test images of the same classes.

    ``format`` is a key of :data:`SOURCES`. ``seed`` draws the validation images, the share
    ``held_out`` of the training images. ``per_class`` limits training and test images to the first
    ones of each class; None keeps all. ``check_counts`` requires the published number of images.
    """
    options: dict[str, Any] = {**SOURCES[format].options}
    if not check_counts:
        options["check_counts"] = False
    learned, test = (open_dataset(data, format, split, **options) for split in ("train", "test"))
    if per_class is not None:
        learned, test = (
            part.subset(first_of_each_class(part.labels, count))
            for part, count in zip((learned, test), per_class, strict=True)
        )
    order = torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed))
    kept = round(held_out * len(learned))
    train, validation = (learned.subset(it.sort().values) for it in (order[kept:], order[:kept]))
    return Splits(format, train, validation, TestSet(test))


def in_memory(steps: int, validate_every: int) -> dict[str, Any]:
    """Return options for short runs on images in memory, where loader processes are slower."""
    cache: Literal["gpu", "ram"] = "gpu" if torch.cuda.is_available() else "ram"
    stop = StopConfig(validate_every=validate_every, patience=steps, max_steps=steps)
    return {"cache": cache, "stop": stop, "hardware": HardwareConfig(workers=0)}
