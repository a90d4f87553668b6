"""A model judged on images, and the files that keep what came out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn

from sumpool.data import DataError, ImageDataset, ImageFeed
from sumpool.evaluation.embed import Embeddings, embed_images
from sumpool.evaluation.metrics import count_matches, retrieval_metrics
from sumpool.report.run.folder import METRICS

#: The K of R@K, where nothing else is asked for.
KS = (1, 2, 4, 8)
#: What :func:`write_vectors` can write, by the ending of the file.
VECTOR_FILES = (".parquet", ".npy")


@dataclass(frozen=True)
class RetrievalEvaluation:
    """Embeddings and what retrieval among them is worth.

    Attributes:
        metrics: The retrieval metrics.
        query: Embeddings of the queries.
        gallery: Embeddings of what is searched; None where it is the queries themselves.
    """

    metrics: dict[str, float]
    query: Embeddings
    gallery: Embeddings | None


def evaluate_retrieval(
    model: nn.Module,
    query_feed: ImageFeed,
    gallery_feed: ImageFeed | None = None,
    *,
    ks: Sequence[int] = KS,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> RetrievalEvaluation:
    """Embed the images of one or two feeds and measure retrieval.

    Args:
        model: The embedder.
        query_feed: Images to search for.
        gallery_feed: Images to search among; None searches among the queries, a query never
            finding itself.
        ks: The K of R@K; see :func:`measurable_ks` for what holds with few images.
        batch_size: Images a pass.
        device: Where neighbours are searched.
        progress: Whether to show progress bars.

    Raises:
        DataError: If the images are too few for ``ks``, or no two of them are of one class.
    """
    ks = measurable_ks(
        query_feed.dataset, None if gallery_feed is None else gallery_feed.dataset, ks
    )
    query = embed_images(model, query_feed, batch_size=batch_size, progress=progress)
    gallery = (
        None
        if gallery_feed is None
        else embed_images(model, gallery_feed, batch_size=batch_size, progress=progress)
    )
    searched = (
        (None, None) if gallery is None else (gallery.vectors.to(device), gallery.labels.to(device))
    )
    metrics = retrieval_metrics(query.vectors.to(device), query.labels.to(device), *searched, ks=ks)
    return RetrievalEvaluation(metrics, query, gallery)


def measurable_ks(
    queries: ImageDataset, gallery: ImageDataset | None = None, ks: Sequence[int] = KS
) -> tuple[int, ...]:
    """The K for which R@K can be measured on these images, known before any is embedded.

    Of ``KS`` those are left out that are more than the images a query can find; of other numbers
    none is, since they were asked for.

    Args:
        queries: Images to search for.
        gallery: Images to search among; None is the others of ``queries``.
        ks: The K that are wanted.

    Raises:
        DataError: If a query cannot find as many images, or none can find one of its class.
    """
    own = gallery is None
    searched = queries if gallery is None else gallery
    if int(count_matches(queries.labels, searched.labels).max()) <= int(own):
        raise DataError(
            f"none of the {len(queries)} images to search for has another one of its class to "
            "find, so no metric is defined"
        )
    available = len(searched) - int(own)
    if tuple(ks) == KS:
        return tuple(k for k in KS if k <= available)
    if max(ks, default=0) > available:
        raise DataError(
            f"ks must be at most {available}, the images a query can find, got {max(ks)}"
        )
    return tuple(ks)


def write_evaluation(
    folder: Path,
    judged: RetrievalEvaluation,
    queries: ImageDataset,
    gallery: ImageDataset | None = None,
) -> None:
    """Write metrics, embeddings, labels and names to ``folder``.

    The files are ``metrics.json``, ``embeddings.npy``, ``labels.npy``, ``items.json`` and, where
    the gallery is another set, the last three with ``gallery-`` before their names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_part(folder, "", judged.query, queries)
    if judged.gallery is not None:
        if gallery is None:
            raise ValueError("gallery must be the data set of the gallery's embeddings, got None")
        _write_part(folder, "gallery-", judged.gallery, gallery)
    # Last, so that metrics are there only with what they were computed from.
    _write_text(folder / METRICS, json.dumps(judged.metrics, indent=1) + "\n")


def write_vectors(path: Path, found: Embeddings, dataset: ImageDataset) -> None:
    """Write embeddings with the names and classes of their images.

    ``.parquet`` has the columns name, label, class and embedding. ``.npy`` holds the vectors alone,
    and a CSV file of the same name beside it the other columns, line by line.

    Raises:
        ValueError: If the file's ending is neither.
    """
    if path.suffix not in VECTOR_FILES:
        raise ValueError(f"out must end in {' or '.join(VECTOR_FILES)}, got {path}")
    names, classes = _names(found, dataset)
    labels = found.labels.numpy()
    vectors = np.ascontiguousarray(found.vectors.numpy())
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        _write_array(path, vectors)
        table = pa.table({"name": names, "label": labels, "class": classes})
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path.with_suffix(".csv"))
        return
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({"name": names, "label": labels, "class": classes, "embedding": column})
    aside = path.with_name(path.name + ".part")
    pq.write_table(table, aside)
    os.replace(aside, path)


def _write_part(folder: Path, prefix: str, found: Embeddings, dataset: ImageDataset) -> None:
    names, _ = _names(found, dataset)
    _write_array(folder / f"{prefix}embeddings.npy", found.vectors.numpy())
    _write_array(folder / f"{prefix}labels.npy", found.labels.numpy())
    items = {"names": names, "class_names": list(dataset.class_names)}
    _write_text(folder / f"{prefix}items.json", json.dumps(items, ensure_ascii=False) + "\n")


def _names(found: Embeddings, dataset: ImageDataset) -> tuple[list[str], list[str]]:
    names = [dataset.item_name(int(index)) for index in found.indices]
    return names, [dataset.class_names[int(label)] for label in found.labels]


def _write_array(path: Path, values: NDArray[Any]) -> None:
    aside = path.with_name(path.name + ".part")
    with aside.open("wb") as file:
        np.save(file, values)
    os.replace(aside, path)


def _write_text(path: Path, text: str) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)
