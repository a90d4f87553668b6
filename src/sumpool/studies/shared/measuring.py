"""Measurements of a trained cell: retrieval, attributes in use, and where the weight falls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data import CifarCollages, GlyphCollages, ImageDataset, ImageFeed, open_feed
from sumpool.data.base import ImageSubset
from sumpool.models import Embedder
from sumpool.studies.cells import CellResult
from sumpool.studies.shared.testbed import EvaluatedOn
from sumpool.training.without_folder import Trained

#: Collages per split for which attention is stored.
SHOWN = 4


def measure(trained: Trained, evaluated_on: EvaluatedOn = "test") -> dict[str, float]:
    """Return the metrics of a cell, on collages with the share of weight on the foreground."""
    retrieval = trained.metrics[evaluated_on]
    metrics: dict[str, float] = {
        "map_at_r": retrieval["mean_average_precision_at_r"],
        "precision_at_1": retrieval["precision_at_1"],
        "validation_map_at_r": trained.metrics["validation"]["mean_average_precision_at_r"],
        "queries": retrieval["queries"],
        "best_step": trained.outcome.best_step,
        "steps": trained.outcome.steps,
    }
    test = trained.splits.test
    places = None if test is None else foreground_tiles(test.query)
    if test is not None and places is not None:
        share = foreground_weight(trained.model, test.query, places)
        if share is not None:
            metrics["foreground_weight"] = share
    return metrics


def foreground_tiles(dataset: ImageDataset) -> Tensor | None:
    """Return the foreground tile of each collage, (N,) int64; None for other images."""
    if isinstance(dataset, ImageSubset):
        tiles = foreground_tiles(dataset.parent)
        return None if tiles is None else tiles[dataset.indices]
    if isinstance(dataset, CifarCollages) and dataset.whole:
        return dataset.foreground_tile
    if isinstance(dataset, GlyphCollages) and dataset.part == "collage":
        return dataset.letter_tile
    return None


def tile_shares(weights: Tensor) -> Tensor:
    """Return the share of weights (b, h, w) on each tile of a 2×2 collage, (b, 4); h, w even."""
    batch, height, width = weights.shape
    if height % 2 or width % 2:
        raise ValueError(f"weights must have an even height and width, got {tuple(weights.shape)}")
    tiles = weights.reshape(batch, 2, height // 2, 2, width // 2).sum((2, 4))
    return tiles.flatten(1) / tiles.sum((1, 2))[:, None]


@torch.no_grad()
def foreground_weight(model: Embedder, collages: ImageDataset, places: Tensor) -> float | None:
    """Return the mean share of pooling weight on the foreground tiles ``places`` (N,).

    It is 25 % for average pooling, and None if the pooling has no weights.
    """
    shares = []
    for batch in open_images(model, collages).test_batches(batch_size=64):
        weights = _weights(model, batch.images)
        if weights is None:
            return None
        shares.append(tile_shares(weights).gather(1, places[batch.indices, None]))
    return float(torch.cat(shares).mean())


@torch.no_grad()
def attention(trained: Trained) -> dict[str, NDArray[Any]] | None:
    """Return some training and test collages with their pooling weights; None if there are none."""
    test = trained.splits.test
    if test is None:
        return None
    images, found, places = [], [], []
    for part in (trained.splits.train, test.query):
        tiles = foreground_tiles(part)
        if tiles is None:
            return None
        # Drawn at random, the same for all methods: equal spacing would repeat foregrounds.
        drawn = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))
        chosen = drawn[:SHOWN].sort().values
        (batch,) = open_images(trained.model, part).test_batches(chosen)
        weights = _weights(trained.model, batch.images)
        if weights is None:
            return None
        images += [np.asarray(part.load(int(it))) for it in chosen]
        found.append(weights)
        places.append(tiles[chosen])
    return {
        "images": np.stack(images),
        "weights": torch.cat(found).numpy(),
        "foreground_tile": torch.cat(places).numpy(),
    }


def attribute_perplexity(attributes: Tensor) -> float:
    """Return the number of attributes in use: exp of the entropy of mean ``attributes`` (N, m).

    Example:
        >>> attribute_perplexity(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        2.0
    """
    mean = attributes.double().mean(0)
    return float(torch.special.entr(mean / mean.sum()).sum().exp())


def result(
    trained: Trained,
    *,
    pictures: bool = False,
    more: Mapping[str, float] | None = None,
    evaluated_on: EvaluatedOn = "test",
) -> CellResult:
    """Return the metrics of a cell together with ``more`` and, with ``pictures``, its attention."""
    metrics = {**measure(trained, evaluated_on), **(more or {})}
    return CellResult(metrics, attention(trained) if pictures else None)


def open_images(model: Embedder, images: ImageDataset) -> ImageFeed:
    """Open the images with the preprocessing of ``model``, on its device."""
    device = next(model.parameters()).device
    return open_feed(images, model.preprocessing, cache="ram", device=device, progress=False)


def _weights(model: Embedder, images: Tensor) -> Tensor | None:
    model.eval()
    pooled = model(images, details=True)
    assert not isinstance(pooled, Tensor)
    return None if pooled.weights is None else pooled.weights.float().cpu()
