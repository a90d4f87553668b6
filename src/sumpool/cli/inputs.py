"""Opens the models and images that verbs are given."""

from __future__ import annotations

import torch
from jsonargparse import Namespace

from sumpool.data import ImageFeed, dataset_splits, detect_format, open_dataset, open_feed
from sumpool.models import Embedder, load
from sumpool.training import ConfigError


def open_model(options: Namespace) -> tuple[Embedder, torch.device]:
    """The model of ``options.model``, a run folder or a model folder, on its device."""
    device = _device(options.device)
    return load(options.model, device), device


def open_images(options: Namespace, model: Embedder, device: torch.device, split: str) -> ImageFeed:
    """The images of ``options.data``, seen as the model sees them."""
    data = options.data
    try:
        name = detect_format(data) if options.format == "auto" else options.format
        splits = dataset_splits(data, name)
        if split not in splits:
            raise ConfigError(
                f"{data}, of the format {name}, has no split {split}: it has {', '.join(splits)}"
            )
        dataset = open_dataset(data, name, split)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return open_feed(dataset, model.preprocessing, device=device, workers=options.workers)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        there = device.type == "cpu" or (
            device.type == "cuda" and (device.index or 0) < torch.cuda.device_count()
        )
    except RuntimeError:  # no name of any device
        there = False
    if not there:
        raise ConfigError(f"device must be cpu or a CUDA device that is there, got {name}")
    return device
