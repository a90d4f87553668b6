"""Open the models and images given to verbs."""

from __future__ import annotations

import logging

import torch
from jsonargparse import Namespace

from sumpool.data import (
    BrokenImageError,
    ImageDataset,
    ImageFeed,
    check_images,
    detect_format,
    open_feed,
)
from sumpool.data.catalog import open_collection
from sumpool.models import Embedder, load
from sumpool.models.pretrained import is_pretrained
from sumpool.training import ConfigError

logger = logging.getLogger(__name__)


def open_model(options: Namespace) -> tuple[Embedder, torch.device]:
    """Load ``options.model``, such as a run or model folder; return it with its device."""
    device = choose_device(options.device)
    model = load(options.model, device)
    if is_pretrained(options.model):
        config = model.config
        logger.info(
            "pretrained is %s with its packaged ImageNet weights: the mean of its last map, %d "
            "numbers of norm 1",
            config.backbone,
            config.embedding_size,
        )
    return model, device


def open_images(
    options: Namespace,
    model: Embedder,
    device: torch.device,
    split: str,
    *,
    need_labels: bool = True,
) -> ImageFeed:
    """Open the readable images of ``options.data`` with the preprocessing of the model."""
    dataset = readable(options, open_part(options, split, need_labels=need_labels))
    return open_feed(dataset, model.preprocessing, device=device, workers=options.workers)


def open_part(options: Namespace, split: str, *, need_labels: bool = True) -> ImageDataset:
    """Open a split of ``options.data``; if labels are not needed, as a collection."""
    data, format = options.data, options.format
    try:
        if need_labels and format == "auto":
            format = detect_format(data)
        return open_collection(data, format, split, allow_outside=options.allow_outside)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def readable(options: Namespace, dataset: ImageDataset) -> ImageDataset:
    """Return the readable images; all must be readable unless ``options.skip_broken``."""
    try:
        parts, _ = check_images({"all": dataset}, skip_broken=options.skip_broken)
    except BrokenImageError as error:
        raise suggest_skipping(error, skipped=options.skip_broken) from error
    return parts["all"]


def suggest_skipping(error: BrokenImageError, *, skipped: bool) -> BrokenImageError:
    """Suggest --skip-broken in ``error``, unless it was given."""
    if skipped:
        return error
    return BrokenImageError(f"{error}; leave such images out with --skip-broken")


def choose_device(name: str) -> torch.device:
    """Return the device ``name``; "auto" is cuda if available, else cpu.

    Raises:
        ConfigError: If it is not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        there = device.type == "cpu" or (
            device.type == "cuda" and (device.index or 0) < torch.cuda.device_count()
        )
    except RuntimeError:  # not a device name
        there = False
    if not there:
        raise ConfigError(f"device must be cpu or an available CUDA device, got {name}")
    return device
