"""Analysis of average pooling: local features, their prototypes, and class hulls.

    sumpool study averaging              (glyph collages; about 5 minutes on one core)
    sumpool study averaging --data DIR   (DIR has cifar-10-batches-py or cifar-100-python)

A network with a two-dimensional embedding is trained by C2 with average pooling (GAP) and with
generalized sum pooling (GSP), and analyzed as in [thesis, sec. 4.3 and figs. 4.2 to 4.4]: 48 local
features are picked by greedy k-center as prototypes, and each image is pooled once from its local
features and once from their nearest prototypes (PCC). The results differ by at most the covering
radius δ of the prototypes (docs/averaging.md). The prototypes that a class uses span a hull; where
the hulls of two classes overlap, only the shares of the prototypes distinguish their images.

Without data, the classes are ten letters among digits; with data, they are the classes of CIFAR-10,
as in the thesis, or the 20 super-classes of CIFAR-100, and the network is a ResNet20. Training,
validation and test images share classes.

Cost: 6 runs, each under a minute on glyphs, or 2000 steps of a ResNet20 on CIFAR. Expected on
glyphs, 3 seeds: the bound holds for every image, δ is about 0.13 and the mean error 0.02; hulls of
active prototypes overlap for all pairs of classes, by 70 to 80 %, those of embeddings by 2 to 8 %.
MAP@R is 63 ± 10 % with GAP and 71 ± 12 % with GSP.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data import ImageDataset, ImageFeed
from sumpool.data.splits import first_of_each_class
from sumpool.models import Embedder
from sumpool.studies.averaging.analysis import Analysis, analyze, measures, typical_images
from sumpool.studies.averaging.setup import (
    AveragingSettings,
    cell_config,
    choose_settings,
    open_parts,
)
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.shared.hulls import convex_hull, pack_hulls
from sumpool.studies.shared.measuring import foreground_tiles, open_images, tile_shares
from sumpool.studies.shared.seeds import seed_range
from sumpool.system.rows import ResultStore, Row
from sumpool.training.without_folder import train_in_memory

SEEDS = 3
#: Images shown, each of a different class, and approximate number of local features drawn.
SHOWN, SAMPLED = 3, 3000


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
    data: Path | None = None,
    jobs: int | None = None,
    weights: Path | None = None,
) -> list[Row]:
    """Train the missing cells; see :class:`~sumpool.studies.shared.study.RunStudy`.

    ``data`` is the unpacked archive of CIFAR-10 or CIFAR-100; None uses glyphs.
    """
    settings = choose_settings(data, quick, weights)
    store = ResultStore(out_dir, "averaging", asdict(settings), force=force)
    cells = [
        {"pool": pool, "loss": "c2", "seed": seed}
        for seed in seed_range(seeds, quick, SEEDS)
        for pool in ("gap", "gsp")
    ]
    work = partial(run_cell, settings, data, weights)
    return run_cells(store, cells, work, jobs=jobs, quick=quick, progress=progress)


def run_cell(
    settings: AveragingSettings, data: Path | None, weights: Path | None, cell: dict[str, Any]
) -> CellResult:
    """Train one model and analyze how it pools its test images."""
    splits = open_parts(settings, data, cell["seed"])
    trained = train_in_memory(cell_config(settings, cell, weights), splits=splits)
    assert splits.test is not None
    test = splits.test.query
    test = test.subset(first_of_each_class(test.labels, settings.images))
    feed = open_images(trained.model, test)
    features, pooling_weights = local_features(trained.model, feed)
    feed.close()
    analysis = analyze(features, pooling_weights.flatten(1), test.labels, settings.prototypes)
    metrics = {
        "map_at_r": trained.metrics["test"]["mean_average_precision_at_r"],
        "validation_map_at_r": trained.metrics["validation"]["mean_average_precision_at_r"],
        "best_step": trained.outcome.best_step,
        **measures(analysis, settings.main_share),
    }
    tiles = foreground_tiles(test)
    if tiles is not None:
        shares = tile_shares(pooling_weights).gather(1, tiles[:, None])
        metrics["foreground_weight"] = float(shares.mean())
    arrays = pictures(analysis, test, settings.main_share) if cell["seed"] == 0 else None
    return CellResult(metrics, arrays)


@torch.inference_mode()
def local_features(model: Embedder, feed: ImageFeed) -> tuple[Tensor, Tensor]:
    """Return local features (N, n, D) and pooling weights (N, h, w) of all images, on the CPU."""
    model.eval()
    features, weights = [], []
    for batch in feed.test_batches():
        maps = model.feature_map(batch.images)  # (b, D, h, w)
        found = model.pooling.pool(maps).weights
        assert found is not None
        features.append(maps.flatten(2).mT.cpu())
        weights.append(found.cpu())
    return torch.cat(features), torch.cat(weights)


def pictures(
    analysis: Analysis, dataset: ImageDataset, main_share: float
) -> dict[str, NDArray[Any]]:
    """Return the arrays for the figures, with vectors in float32.

    Returns:
        ``features`` (S, 2), a sample of the local features, with the classes of their images
        (``feature_classes``); ``prototypes`` (m, 2); ``pooled`` and ``combined`` (N, 2) with the
        ``labels`` of the images; ``shares`` (C, m) of the labels ``classes``, and ``class_names``;
        corners and sizes of the class hulls of ``active`` and ``main`` prototypes and of
        ``embedding``; and, for K images, ``images`` (K, H, W, 3) uint8, their index ``image_index``
        among all, ``image_features`` (K, n, 2), ``image_histograms`` (K, m), ``image_errors`` (K,)
        and the hulls of their active prototypes (``image``).
    """
    count, places = analysis.features.shape[:2]
    # Evenly spaced over the images, at positions that vary from image to image.
    step = max(1, count * places // SAMPLED)
    step += places % step == 0 and step > 1
    sampled = torch.arange(0, count * places, step)
    shown = typical_images(analysis, SHOWN)
    arrays: dict[str, NDArray[Any]] = {
        "features": _float(analysis.features.flatten(0, 1)[sampled]),
        "feature_classes": analysis.labels[sampled // places].numpy(),
        "prototypes": _float(analysis.prototypes),
        "pooled": _float(analysis.pooled),
        "combined": _float(analysis.combined),
        "labels": analysis.labels.numpy(),
        "shares": _float(analysis.shares),
        "classes": analysis.labels.unique().numpy(),
        "class_names": np.array(dataset.class_names),
        "images": np.stack([np.asarray(dataset.load(it)) for it in shown]),
        "image_index": np.array(shown),
        "image_features": _float(analysis.features[shown]),
        "image_histograms": _float(analysis.found.histogram[shown]),
        "image_errors": _float(analysis.found.error[shown]),
    }
    used = analysis.found.histogram[shown] > 0
    for name, hulls in (
        ("active", analysis.prototype_hulls().hulls),
        ("main", analysis.prototype_hulls(main_share).hulls),
        ("embedding", analysis.embedding_hulls().hulls),
        ("image", [convex_hull(analysis.prototypes[it].numpy()) for it in used]),
    ):
        arrays |= pack_hulls(name, hulls, np.float32)
    return arrays


def _float(values: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = values.float().numpy()
    return found
