"""Zero-shot prediction: do attributes describe classes that the map was not fitted on?

    sumpool study prediction --data DIR     (DIR has cifar-10-batches-py or cifar-100-python)

GSP with 8 prototypes is trained by ProxyNCA++ with and without the zero-shot loss [gsp, fig. 4], on
the classes of CIFAR-10 or on the 20 super-classes of CIFAR-100. A linear map from pseudo-attribute
histograms to mean embeddings of classes, both over test images, is fitted on half of the classes
and predicts the embeddings of the other half, over 1000 random splits
(:mod:`sumpool.studies.prediction.attribute_transfer`). Unlike in retrieval, training, validation
(a random tenth of the training images) and test images share classes.

Cost: 12 cells, each 2000 steps of a ResNet20. The papers report that attributes transfer better
with the zero-shot loss. On CIFAR-100 the opposite holds: 32.6 ± 9.6 % without and 10.0 ± 0.0 %
with it at ε = 10, by cosine, over 3 seeds; chance is 10 % (docs/results/prediction-h200). At
ε = 0.5, a prototype can have at most e times the share of another, so that class histograms stay
close to each other; hence the additional ε = 10.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data import ImageFeed, write_cifar_stand_in
from sumpool.models import Embedder
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.prediction.attribute_transfer import (
    class_means,
    class_splits,
    halves,
    transfer_accuracy,
)
from sumpool.studies.prediction.setup import (
    PredictionSettings,
    cell_config,
    choose_settings,
    open_parts,
)
from sumpool.studies.shared.measuring import attribute_perplexity, open_images
from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.spacing import evenly_spaced
from sumpool.system.rows import ResultStore, Row
from sumpool.training.without_folder import train_in_memory

SEEDS = 3
#: Inverse smoothing ε: that of the papers, and one at which the attributes of classes differ.
EPS = (0.5, 10.0)
#: Maximum number of images shown, each of a different class.
SHOWN = 10


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

    ``data`` is the unpacked archive of CIFAR-10 or CIFAR-100; it is optional in quick mode.
    """
    settings = choose_settings(data, quick, weights)
    store = ResultStore(out_dir, "prediction", asdict(settings), force=force)
    cells = [
        {"eps": eps, "zero_shot": zero_shot, "seed": seed}
        for seed in seed_range(seeds, quick, SEEDS)
        for eps in (EPS[1:] if quick else EPS)
        for zero_shot in (False, True)
    ]
    missing = any(store.find(cell) is None for cell in cells)
    with _folder(data, draw=missing) as folder:
        work = partial(run_cell, settings, folder, weights)
        return run_cells(store, cells, work, jobs=jobs, quick=quick, progress=progress)


def run_cell(
    settings: PredictionSettings, data: Path, weights: Path | None, cell: dict[str, Any]
) -> CellResult:
    """Train one model, with or without the zero-shot loss, and evaluate its predictions."""
    splits = open_parts(settings, data, cell["seed"])
    trained = train_in_memory(cell_config(settings, cell, weights), splits=splits)
    assert splits.test is not None
    test = splits.test.query
    feed = open_images(trained.model, test)
    attributes, embeddings = attributes_and_embeddings(trained.model, feed)
    classes = len(test.class_names)
    histograms = class_means(attributes, test.labels, classes)
    means = class_means(embeddings, test.labels, classes)
    orders = class_splits(classes, settings.splits, cell["seed"])
    found = transfer_accuracy(histograms, means, orders, settings.ridge)
    freely = transfer_accuracy(histograms, means, orders, settings.small_ridge)
    metrics = {
        "accuracy_l2": float(found.l2.mean()),
        "accuracy_l2_std": float(found.l2.std()),
        "accuracy_cosine": float(found.cosine.mean()),
        "accuracy_cosine_std": float(found.cosine.std()),
        "accuracy_l2_small_ridge": float(freely.l2.mean()),
        "accuracy_cosine_small_ridge": float(freely.cosine.mean()),
        "mean_precision_l2": float(found.map_l2.mean()),
        "mean_precision_cosine": float(found.map_cosine.mean()),
        "chance": 1 / halves(classes)[1],
        "attribute_perplexity": attribute_perplexity(attributes),
        "class_perplexity": float(np.mean([attribute_perplexity(row[None]) for row in histograms])),
        "map_at_r": trained.metrics["test"]["mean_average_precision_at_r"],
        "precision_at_1": trained.metrics["test"]["precision_at_1"],
        "validation_map_at_r": trained.metrics["validation"]["mean_average_precision_at_r"],
        "best_step": trained.outcome.best_step,
    }
    arrays = None
    if cell["seed"] == 0:
        names = np.array(test.class_names)
        arrays = {"histograms": histograms.float().numpy(), "class_names": names}
        arrays |= look_at(trained.model, feed)
    feed.close()
    return CellResult(metrics, arrays)


@torch.inference_mode()
def attributes_and_embeddings(model: Embedder, feed: ImageFeed) -> tuple[Tensor, Tensor]:
    """Return pseudo-attributes (N, m) and embeddings (N, D) of all images, on the CPU."""
    model.eval()
    pooled = [model(batch.images, details=True) for batch in feed.test_batches()]
    return (
        torch.cat([out.attributes.cpu() for out in pooled]),
        torch.cat([out.embedding.cpu() for out in pooled]),
    )


@torch.inference_mode()
def look_at(model: Embedder, feed: ImageFeed, most: int = SHOWN) -> dict[str, NDArray[Any]]:
    """Return what prototypes take from the first image of up to ``most`` evenly spaced classes.

    Returns:
        ``images`` (K, H, W, 3) uint8; ``image_classes`` (K,) int64; ``dominant`` (K, h, w) int64,
        the prototype that takes the most from a position; and ``weights`` (K, h, w) float32, the
        sum over prototypes.
    """
    dataset = feed.dataset
    classes = dataset.labels.unique()
    shown = classes[evenly_spaced(len(classes), most)]
    chosen = [int((dataset.labels == it).nonzero()[0]) for it in shown]
    (batch,) = feed.test_batches(chosen, batch_size=len(chosen))
    # Any: only poolings with prototypes have a plan.
    pooling: Any = model.eval().pooling
    plan: Tensor = pooling.plan(model.feature_map(batch.images)).cpu()  # (K, m, h, w)
    return {
        "images": np.stack([np.asarray(dataset.load(index)) for index in chosen]),
        "image_classes": dataset.labels[chosen].numpy(),
        "dominant": plan.argmax(1).numpy(),
        "weights": plan.sum(1).float().numpy(),
    }


@contextmanager
def _folder(data: Path | None, *, draw: bool) -> Iterator[Path]:
    """Yield ``data`` or, if None, a temporary folder, with stand-in images if ``draw``."""
    if data is not None:
        yield data
        return
    with tempfile.TemporaryDirectory() as folder:
        if draw:
            write_cifar_stand_in(folder, train_per_class=4, test_per_class=2)
        yield Path(folder)
