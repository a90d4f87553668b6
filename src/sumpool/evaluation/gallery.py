"""Collect the pictures for the page of a run, and write them to the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sumpool.evaluation.embed import Embeddings
from sumpool.evaluation.gallery_images import ShownImages
from sumpool.evaluation.gallery_map import flatten_to_plane
from sumpool.evaluation.gallery_queries import score_shown, shown_queries, worst_rows
from sumpool.evaluation.gallery_regions import feeding, grid_shape
from sumpool.evaluation.metrics import QueryScores
from sumpool.report.run.gallery import EmbeddingMap, Gallery, Prototype, Region
from sumpool.report.run.gallery_files import write_gallery
from sumpool.system.modes import evaluating

if TYPE_CHECKING:
    from sumpool.data import ImageFeed

#: Maximum number of points on the map, which then takes two seconds.
MOST_POINTS = 1000
#: Maximum number of images that are searched for the regions that feed prototypes.
MOST_IMAGES = 512
#: Regions shown per prototype.
REGIONS = 6
#: Classes shown in color on the map.
COLORED = 10


def collect_gallery(
    model: nn.Module,
    feed: ImageFeed,
    embeddings: Embeddings,
    *,
    folder: Path,
    gallery_embeddings: Embeddings | None = None,
    gallery_feed: ImageFeed | None = None,
    source: str = "test",
    images: int = 12,
    neighbors: int = 8,
    prototypes: int = 12,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Gallery:
    """Collect the pictures of an evaluation and write them to ``folder``.

    These are the worst queries and a random sample of queries with their nearest images and pooling
    weights, the regions that feed the most used prototypes, and a map of the embedding. The sample
    depends only on the number of images and the seed, so different models show the same images.

    Args:
        model: An ``Embedder``, which is left unchanged.
        feed: The query images.
        embeddings: Embeddings of the queries, with their indices in the feed's data set.
        folder: Folder of the gallery; an older one is replaced.
        gallery_embeddings: Embeddings of the searched images; None searches the other queries.
        gallery_feed: The searched images; None if they are in ``feed`` too.
        source: Name of the evaluation on the page.
        images: Queries of each kind to show.
        neighbors: Nearest images to show per query.
        prototypes: Prototypes to show.
        seed: Seed of the sample and of the map.
        device: Device of the neighbor search.
    """
    for name, value in (("images", images), ("neighbors", neighbors), ("prototypes", prototypes)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if gallery_embeddings is None and gallery_feed is not None:
        raise ValueError("gallery_feed is of no use without gallery_embeddings")
    if len(embeddings.vectors) < 2:
        raise ValueError(f"embeddings must hold at least 2 images, got {len(embeddings.vectors)}")
    query = searched = ShownImages(feed, embeddings, "image")
    if gallery_embeddings is not None:
        searched = ShownImages(gallery_feed or feed, gallery_embeddings, "gallery")
    scores = score_shown(query, searched, device)
    worst = worst_rows(scores, images, seed)
    sample = _draw(len(query), images, seed).tolist()
    rows = sorted({*worst, *sample})
    answers = shown_queries(query, searched, rows, scores, neighbors, device)
    shown = dict(zip(rows, answers, strict=True))
    notes: list[str] = []
    with torch.no_grad(), evaluating(model):
        weights = _weights(model, query, rows, notes)
        usage, fed = _prototypes(model, query, prototypes, seed, notes)
    gallery = Gallery(
        source=source,
        queries=int((scores.matches > 0).sum()),
        worst=tuple(shown[row] for row in worst),
        sample=tuple(shown[row] for row in sample),
        weights=weights,
        usage=usage,
        prototypes=fed,
        embedding_map=_map(query, scores, seed, notes),
        notes=tuple(notes),
        images={**query.thumbnails.files, **searched.thumbnails.files},
    )
    write_gallery(gallery, folder)
    return gallery


def _draw(count: int, most: int, seed: int) -> Tensor:
    chosen = np.random.default_rng(seed).permutation(count)[:most]
    return torch.from_numpy(np.sort(chosen))


def _weights(
    model: Any, query: ShownImages, rows: list[int], notes: list[str]
) -> dict[str, NDArray[np.float32]]:
    maps: list[NDArray[np.float32]] = []
    for batch in query.batches(rows):
        weights: Tensor | None = model(batch, details=True).weights
        if weights is None:
            notes.append("The pooling has no weights to lay over images.")
            return {}
        grid = grid_shape(tuple(weights.shape[1:]))
        if grid is None:
            count = weights.shape[1]
            notes.append(f"The weights are not shown: their {count} positions form no square.")
            return {}
        weights = weights.float().reshape(len(weights), *grid)
        maps += [*(weights * (grid[0] * grid[1])).cpu().numpy()]
    return dict(zip(map(query.thumbnail, rows), maps, strict=True))


def _prototypes(
    model: Any, query: ShownImages, count: int, seed: int, notes: list[str]
) -> tuple[NDArray[np.float32] | None, tuple[Prototype, ...]]:
    plan = getattr(model.pooling, "plan", None)
    if plan is None:
        notes.append("The pooling has no prototypes.")
        return None, ()
    rows = [int(row) for row in _draw(len(query), MOST_IMAGES, seed)]
    fed = feeding(plan(model.feature_map(batch)) for batch in query.batches(rows))
    if fed is None:
        notes.append("The prototypes are not shown: the positions form no square.")
        return None, ()
    if getattr(model.pooling, "background", False):
        notes.append("These prototypes describe the background: what they receive is left out.")
    shown = []
    for prototype in fed.usage.argsort(descending=True, stable=True)[:count].tolist():
        regions = []
        for rank, (place, cell, weight) in enumerate(fed.top(prototype, REGIONS)):
            row = rows[place]
            image, box = query.thumbnails.cut(
                int(query.indices[row]),
                divmod(cell, fed.grid[1]),
                fed.grid,
                f"prototype-{prototype:04d}-{rank}",
            )
            regions.append(Region(image=image, **query.named(row), weight=weight, box=box))
        shown.append(Prototype(prototype, float(fed.usage[prototype]), tuple(regions)))
    return fed.usage.float().numpy(), tuple(shown)


def _map(
    query: ShownImages, scores: QueryScores, seed: int, notes: list[str]
) -> EmbeddingMap | None:
    rows = _draw(len(query), MOST_POINTS, seed + 1)
    if len(rows) < 3:
        notes.append(f"There is no map of {len(rows)} points.")
        return None
    vectors = query.vectors[rows.to(query.vectors.device)].float().cpu().numpy()
    points, method = flatten_to_plane(vectors, seed)
    classes, labels = query.labels[rows].unique(return_inverse=True)
    names = tuple(query.dataset.class_names[int(label)] for label in classes)
    precision = scores.average_precision.nan_to_num(1.0)  # no match, no mistake
    means = torch.stack([precision[query.labels == label].mean() for label in classes])
    colored = tuple(means.argsort(stable=True)[:COLORED].tolist())
    return EmbeddingMap(points, labels.numpy(), names, colored, method)
