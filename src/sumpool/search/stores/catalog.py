"""Vector stores by name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumpool.search.stores.approximate import ApproximateIndex
from sumpool.search.stores.base import Ids, VectorIndex, Vectors
from sumpool.search.stores.exact import ExactIndex
from sumpool.system.errors import UserError
from sumpool.system.wording import counted

#: Values of ``--store``, besides the address of a Milvus server.
STORES = ("auto", "exact", "approximate", "hnsw", "ivfpq")
MILVUS = "milvus:"
#: Number of vectors above which exact search logs a warning.
EXACT = 1_000_000

logger = logging.getLogger(__name__)


def check_store(store: str) -> None:
    """Check the name of a store.

    Raises:
        UserError: If it is unknown; the message lists the choices.
    """
    if store not in STORES and not (store.startswith(MILVUS) and store != MILVUS):
        raise UserError(f"store must be {', '.join(STORES)} or milvus:URI, got {store!r}")


def open_store(
    store: str,
    folder: Path,
    ids: Ids,
    vectors: Vectors,
    labels: Sequence[str | None],
    versions: NDArray[np.uint32] | None = None,
    *,
    build: bool = False,
) -> VectorIndex:
    """Open the vector index ``store`` with exactly the given vectors.

    "auto" is an approximate store if the folder has one, else exact; it never builds one.
    "approximate" is "ivfpq", which takes less time and memory than "hnsw" and finds more.

    Args:
        store: One of ``STORES``, or "milvus:URI".
        folder: The index folder, where stores keep their files.
        ids: One id ≥ 0 per image, (N,).
        vectors: (N, D), of norm 1; usually memory-mapped.
        labels: One per image; None for unlabeled ones.
        versions: A number per image that changes with its vector, (N,); None if none ever does.
        build: Whether a store that is slow to build may be built or extended.

    Raises:
        UserError: If the store is unknown, cannot be reached, or must be built first.
    """
    check_store(store)
    count, size = vectors.shape
    if store.startswith(MILVUS):
        from sumpool.search.stores.milvus import MilvusIndex, check_count

        milvus = MilvusIndex(store.removeprefix(MILVUS), folder, size, count)
        if build:
            milvus.synchronize(ids, vectors, labels, versions)
        check_count(milvus, count, folder, store)
        return milvus
    there = [kind for kind in ("ivfpq", "hnsw") if store_file(folder, kind).is_file()]
    if store == "approximate":
        store = "ivfpq"
    elif store == "auto" and there:
        store = there[0]
    elif store == "auto":
        store = "exact"
        if count > EXACT:
            logger.warning(
                "%s are compared one by one; sumpool index %s --update --store approximate builds "
                "a file of %.2g GB that is faster",
                *(counted(count, "vector"), folder, count * (size / 4 + 16) / 1e9),
            )
    if store == "exact":
        index = ExactIndex(size)
        index.add(ids, vectors, labels)
        return index
    approximate = ApproximateIndex(store_file(folder, store), store, size, build=build)
    approximate.add(ids, vectors, labels, versions)
    return approximate


def store_file(folder: Path, kind: str) -> Path:
    """Path of an approximate store."""
    return folder / f"store-{kind}.faiss"
