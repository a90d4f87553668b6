"""The vector index of an index folder, by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumpool.search.stores.base import Ids, VectorIndex, Vectors
from sumpool.search.stores.exact import ExactIndex
from sumpool.system.errors import UserError

#: What ``--store`` accepts, besides the address of a Milvus.
STORES = ("auto", "exact")


def check_store(store: str) -> None:
    """See that ``store`` can be asked for.

    Raises:
        UserError: If it is unknown; lists the choices.
    """
    if store not in STORES:
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
    """The vector index ``store`` with exactly the given vectors in it.

    Args:
        store: Its name, one of ``STORES``, or "milvus:URI".
        folder: The index folder, where stores keep files of their own.
        ids: One number ≥ 0 per image, (N,).
        vectors: (N, D), of norm 1; usually mapped from a file.
        labels: One per image; None for those without.
        versions: A number per image that changes with its vector, (N,); None if none ever does.
        build: Whether a store that takes long to build may be built, or added to, now.

    Raises:
        UserError: If the store is unknown, cannot be reached, or must be built first.
    """
    check_store(store)
    index = ExactIndex(vectors.shape[1])
    index.add(ids, vectors, labels)
    return index
