"""Opens what the verbs that use a model are pointed at."""

from __future__ import annotations

from pathlib import Path

import torch
from jsonargparse import Namespace

from sumpool.data import ImageFeed, open_dataset, open_feed
from sumpool.models import Embedder, load_embedder
from sumpool.training import ConfigError


def open_model(options: Namespace) -> tuple[Embedder, torch.device]:
    """The model of ``options.model``, a run folder or a model folder, on its device."""
    device = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu")
        if options.device == "auto"
        else options.device
    )
    folder = Path(options.model)
    inside = folder / "model"
    return load_embedder(inside if inside.is_dir() else folder, device=device), device


def open_images(options: Namespace, model: Embedder, device: torch.device, split: str) -> ImageFeed:
    """The images of ``options.data``, seen as the model sees them."""
    try:
        dataset = open_dataset(options.data, options.format, split)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return open_feed(dataset, model.preprocessing, device=device, workers=options.workers)
