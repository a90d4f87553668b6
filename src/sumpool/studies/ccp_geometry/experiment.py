"""Effect of alternating problems on the geometry of unseen classes.

    sumpool study ccp-geometry              (glyphs: 6 runs)
    sumpool study ccp-geometry --data DIR   (CIFAR-100 or CUB: for a GPU)

Compares embeddings of the validation images after one proxy problem and after alternating problems
[thesis, fig. 3.3]: MAP@R, the covering radius of a class, averaged over 1 to n greedy centers, and
the mean distance between images of different classes. Expected on CUB: alternation gives a smaller
radius and larger distances between classes. Problems return to their best validation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumpool.centers import mean_covering_radius
from sumpool.evaluation import embed_images
from sumpool.evaluation.gallery_map import flatten_to_plane
from sumpool.studies.cells import CellResult
from sumpool.studies.shared.ccp import cell_config, prepare, problem_metrics, with_method
from sumpool.studies.shared.measuring import open_images, result
from sumpool.studies.shared.pooling_study import pooling_study
from sumpool.studies.shared.spacing import evenly_spaced
from sumpool.studies.shared.testbed import Testbed, train_on

LEVELS = ({"method": "one problem"}, {"method": "alternating"})
#: Maximum number of validation images shown in figures.
SHOWN = 1000


def train(testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train one cell and analyze its validation images."""
    config = with_method(cell_config(testbed, cell), cell["method"], solution="best")
    trained = train_on(testbed, config)
    validation = trained.splits.validation
    feed = open_images(trained.model, validation)
    vectors = embed_images(trained.model, feed).vectors.float().cpu()
    feed.close()
    more = problem_metrics(trained.problems, "best") | geometry(vectors, validation.labels)
    metrics = result(trained, more=more).metrics
    if cell["seed"] != 0:
        return CellResult(metrics)
    chosen = evenly_spaced(len(vectors), SHOWN)
    points, method = flatten_to_plane(vectors[chosen].numpy())
    arrays = {
        "points": points,
        "labels": validation.labels[chosen].numpy(),
        "method": np.array(method),
    }
    return CellResult(metrics, arrays)


def geometry(vectors: Tensor, labels: Tensor) -> dict[str, float]:
    """Measure the radius and distance of classes, given embeddings (N, D) with labels (N,).

    Returns:
        ``mean_covering_radius``, the covering radius with k greedy centers, averaged over
        k = 1..n and classes; ``class_distance``, the mean distance between images of different
        classes; and ``relative_radius``, the first divided by the second.

    Example:
        >>> geometry(torch.tensor([[0.0], [2.0], [5.0], [5.0]]), torch.tensor([0, 0, 1, 1]))
        {'mean_covering_radius': 0.5, 'class_distance': 4.0, 'relative_radius': 0.125}
    """
    classes = labels.unique()
    sizes = [int((labels == it).sum()) for it in classes]
    points = vectors.new_zeros(len(classes), max(sizes), vectors.shape[1])  # (C, n, D)
    for place, label in enumerate(classes):
        points[place, : sizes[place]] = vectors[labels == label]
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    radius = float(mean_covering_radius(points, mask).mean())
    apart = torch.cdist(vectors, vectors)[labels[:, None] != labels]
    distance = float(apart.mean())
    return {
        "mean_covering_radius": radius,
        "class_distance": distance,
        "relative_radius": radius / distance if distance else 0.0,
    }


run = pooling_study("ccp-geometry", lambda *_: LEVELS, train, losses=("c2",), adapt=prepare)
