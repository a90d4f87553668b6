"""Exact search with faiss, in vectors that may lie on disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.search.stores.base import Found, Ids, Vectors, check_new, check_queries, check_rows
from sumpool.search.stores.labels import LabelColumn
from sumpool.system.extras import import_extra


class ExactIndex:
    """Compares every query with every vector, as ``faiss.IndexFlatIP`` does.

    The first vectors added are used in place: a memory-mapped array is read on demand and shared by
    all processes that map it. Later changes copy.

    Args:
        size: Dimension D of the vectors.

    Raises:
        UserError: If faiss is missing.

    Example:
        >>> index = ExactIndex(2)
        >>> vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
        >>> index.add(np.array([7, 8, 9]), vectors, ["a", "b", "a"])
        >>> index.search(vectors[:1], 2, labels=["a"])
        Found(ids=array([[7, 9]]), similarities=array([[1. , 0.6]], dtype=float32))
    """

    def __init__(self, size: int) -> None:
        self._faiss = load_faiss()
        self._size = size
        self._ids: Ids = np.empty(0, np.int64)
        self._vectors: Vectors = np.empty((0, size), np.float32)
        self._labels = LabelColumn()

    def add(self, ids: Ids, vectors: Vectors, labels: Sequence[str | None]) -> None:
        """See :class:`~sumpool.search.stores.base.VectorIndex`."""
        check_rows(self._size, ids, vectors, labels)
        check_new(self._ids, ids)
        block = np.ascontiguousarray(vectors)
        if len(self._ids):
            ids, block = np.concatenate([self._ids, ids]), np.concatenate([self._vectors, block])
        self._ids, self._vectors = ids, block
        self._labels.append(labels)

    def remove(self, ids: Ids) -> None:
        """See :class:`~sumpool.search.stores.base.VectorIndex`."""
        kept = ~np.isin(self._ids, ids)
        if not kept.all():
            self._ids, self._vectors = self._ids[kept], self._vectors[kept]
            self._labels.keep(kept)

    def search(self, queries: Vectors, k: int, labels: Collection[str] | None = None) -> Found:
        """See :class:`~sumpool.search.stores.base.VectorIndex`."""
        queries = check_queries(self._size, queries, k)
        accepted = None if labels is None else self._labels.among(labels)
        return self._nearest(queries, k, accepted)

    def _nearest(self, queries: Vectors, k: int, accepted: NDArray[np.bool_] | None) -> Found:
        """Find the k nearest accepted rows; None accepts all."""
        rows = np.empty((len(queries), k), np.int64)
        similarities = np.empty((len(queries), k), np.float32)
        selector = () if accepted is None else (select(self._faiss, accepted),)
        pointer = self._faiss.swig_ptr
        self._faiss.knn_inner_product(
            pointer(queries),
            pointer(self._vectors),
            self._size,
            len(queries),
            len(self._vectors),
            k,
            pointer(similarities),
            pointer(rows),
            *selector,
        )
        return found(rows, similarities, self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def close(self) -> None:
        """Release the vectors."""
        self._ids, self._vectors = self._ids[:0], np.empty((0, self._size), np.float32)
        self._labels = LabelColumn()


def load_faiss() -> Any:
    """Import faiss.

    Raises:
        UserError: If it is missing; the message says how to install it.
    """
    return import_extra("faiss", "search", "search needs")


def select(faiss: Any, rows: NDArray[np.bool_]) -> Any:
    """Return the faiss selector of the marked rows."""
    return faiss.IDSelectorBitmap(np.packbits(rows, bitorder="little"))


def found(rows: Ids, similarities: Vectors, ids: Ids) -> Found:
    """Replace row numbers found by faiss by ids; −1 stays."""
    missing = rows < 0
    if missing.any():
        similarities[missing] = -np.inf
        return Found(np.where(missing, -1, ids[rows] if len(ids) else -1), similarities)
    return Found(ids[rows], similarities)
