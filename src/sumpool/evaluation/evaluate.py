"""Evaluation of a model on images, and the files that store the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from sumpool.evaluation.inputs import check_ks
from sumpool.evaluation.metrics import count_matches, retrieval_metrics
from sumpool.report.run.folder import DIGESTS, METRICS
from sumpool.system.digests import write_digests
from sumpool.system.files import atomic_path, write_atomic
from sumpool.system.wording import counted

#: The default K of R@K.
KS = (1, 2, 4, 8)
#: Files for each part of an evaluation, queries and gallery.
PART_FILES = ("embeddings.npy", "labels.npy", "items.json")
#: File extensions that :func:`write_vectors` supports.
VECTOR_FILES = (".parquet", ".npy")


@dataclass(frozen=True)
class RetrievalEvaluation:
    """Embeddings and their retrieval metrics.

    Attributes:
        metrics: The retrieval metrics.
        query: Embeddings of the queries.
        gallery: Embeddings of the gallery; None if queries are searched among themselves.
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
        gallery_feed: Images to search among; None searches the other queries.
        ks: The K of R@K; see :func:`measurable_ks` for few images.
        batch_size: Images per forward pass.
        device: Device of the neighbor search.
        progress: Whether to show progress bars.

    Raises:
        DataError: If retrieval cannot be measured on these images; see :func:`measurable_ks`.
    """
    others = None if gallery_feed is None else gallery_feed.dataset
    ks = measurable_ks(query_feed.dataset, others, ks)
    embed = partial(embed_images, model, batch_size=batch_size, progress=progress)
    query = embed(query_feed)
    gallery = None if gallery_feed is None else embed(gallery_feed)
    # Everything is moved to the device of the queries.
    searched = () if gallery is None else (gallery.vectors, gallery.labels)
    metrics = retrieval_metrics(query.vectors.to(device), query.labels, *searched, ks=ks)
    return RetrievalEvaluation(metrics, query, gallery)


def measurable_ks(
    queries: ImageDataset, gallery: ImageDataset | None = None, ks: Sequence[int] = KS
) -> tuple[int, ...]:
    """Return the K for which R@K can be measured on these images, before any is embedded.

    Of the default ``KS``, those above the number of images that a query can find are left out;
    explicitly requested ones are an error.

    Args:
        queries: Images to search for.
        gallery: Images to search among; None searches the other queries.
        ks: The requested K.

    Raises:
        DataError: If a query cannot find that many images, no query has a match, all images are of
            one class, or queries and gallery have images in common or number classes differently.
    """
    own = gallery is None
    if gallery is not None:
        _check_gallery(queries, gallery)
    searched = queries if gallery is None else gallery
    if int(count_matches(queries.labels, searched.labels).max()) <= int(own):
        raise DataError(
            f"none of the {counted(len(queries), 'image')} to search for has another one of its "
            "class to find, so no metric is defined"
        )
    classes = searched.labels.unique()
    if len(classes) == 1:
        raise DataError(
            "nothing can be measured: there is one class to search among, "
            f"{searched.class_names[int(classes)]}, so that whatever is found is right; take "
            "images of at least two classes"
        )
    available = len(searched) - int(own)
    if tuple(ks) == KS:
        return tuple(k for k in KS if k <= available)
    if max(ks, default=0) > available:
        raise DataError(
            f"ks must be at most {available}, the images a query can find, got {max(ks)}"
        )
    return check_ks(ks, available)


def _check_gallery(queries: ImageDataset, gallery: ImageDataset) -> None:
    names = zip(queries.class_names, gallery.class_names, strict=False)
    for number, (one, other) in enumerate(names):
        if one != other:
            raise DataError(
                f"queries and gallery must number their classes alike, but label {number} is "
                f"{one} among the queries and {other} in the gallery"
            )
    found = [it for it in _files(queries) if it is not None]
    if common := set(found).intersection(_files(gallery)):
        which = counted(len(common), "image")
        raise DataError(
            f"{which} to search for would find itself in the gallery, such as {min(common)[1]}"
        )


def _files(dataset: ImageDataset) -> Iterator[tuple[str, str] | None]:
    for index in range(len(dataset)):
        file = dataset.item_file(index)
        yield None if file is None else (file, dataset.item_name(index))


def write_evaluation(
    folder: Path,
    evaluation: RetrievalEvaluation,
    queries: ImageDataset,
    gallery: ImageDataset | None = None,
) -> None:
    """Write metrics, embeddings, labels and names to ``folder``.

    The files are ``metrics.json``, ``embeddings.npy``, ``labels.npy``, ``items.json`` and, with a
    separate gallery, the last three with the prefix ``gallery-``. ``SHA256SUMS`` holds their
    digests, for ``sha256sum -c``; it is absent while they are being written.
    """
    for name in (DIGESTS, *(f"gallery-{name}" for name in PART_FILES)):
        (folder / name).unlink(missing_ok=True)
    _write_part(folder, "", evaluation.query, queries)
    if evaluation.gallery is not None:
        if gallery is None:
            raise ValueError("gallery must be the data set of the gallery's embeddings, got None")
        _write_part(folder, "gallery-", evaluation.gallery, gallery)
    # Last, so that metrics exist only together with what they were computed from.
    metrics = json.dumps(evaluation.metrics, indent=1) + "\n"
    write_atomic(folder / METRICS, metrics.encode())
    files = evaluation_files(folder, gallery=evaluation.gallery is not None)
    write_digests(folder, DIGESTS, only=[it.name for it in files])


def vector_files(path: Path) -> list[Path]:
    """Return the files that :func:`write_vectors` writes.

    Example:
        >>> [file.name for file in vector_files(Path("five.npy"))]
        ['five.npy', 'five.names.csv']
    """
    # Not five.csv: images are often listed in a file of that name.
    return [path, path.with_suffix(".names.csv")] if path.suffix == ".npy" else [path]


def evaluation_files(folder: Path, *, gallery: bool) -> list[Path]:
    """Return the files that :func:`write_evaluation` writes."""
    parts = ("", "gallery-") if gallery else ("",)
    names = [f"{part}{name}" for part in parts for name in PART_FILES]
    return [folder / name for name in (METRICS, *names, DIGESTS)]


def write_vectors(path: Path, found: Embeddings, dataset: ImageDataset) -> None:
    """Write embeddings with the names and classes of their images.

    ``.parquet`` has the columns name, label, class and embedding; without labels, name and
    embedding. ``.npy`` holds only the vectors; the other columns are in a CSV file with one line
    per vector, see :func:`vector_files`. Existing files are replaced.

    Raises:
        ValueError: If the file extension is neither.
    """
    if path.suffix not in VECTOR_FILES:
        raise ValueError(f"out must end in {' or '.join(VECTOR_FILES)}, got {path}")
    vectors = np.ascontiguousarray(found.vectors.numpy())
    columns: dict[str, Any] = {"name": _names(found, dataset)}
    if dataset.labeled:
        columns["label"] = found.labels.numpy()
        columns["class"] = [dataset.class_names[int(label)] for label in found.labels]
    if path.suffix == ".npy":
        import pyarrow.csv

        _write_array(path, vectors)
        with atomic_path(vector_files(path)[1]) as aside:
            pyarrow.csv.write_csv(pa.table(columns), aside)
        return
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    with atomic_path(path) as aside:
        pq.write_table(pa.table({**columns, "embedding": column}), aside)


def _write_part(folder: Path, prefix: str, found: Embeddings, dataset: ImageDataset) -> None:
    _write_array(folder / f"{prefix}embeddings.npy", found.vectors.numpy())
    _write_array(folder / f"{prefix}labels.npy", found.labels.numpy())
    items = {"names": _names(found, dataset), "class_names": list(dataset.class_names)}
    content = json.dumps(items, ensure_ascii=False) + "\n"
    write_atomic(folder / f"{prefix}items.json", content.encode())


def _names(found: Embeddings, dataset: ImageDataset) -> list[str]:
    return [dataset.item_name(int(index)) for index in found.indices]


def _write_array(path: Path, values: NDArray[Any]) -> None:
    with atomic_path(path) as aside, aside.open("wb") as file:
        np.save(file, values)
