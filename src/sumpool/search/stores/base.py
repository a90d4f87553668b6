"""Interface of all vector indexes, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: One vector per row.
Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]


class Found(NamedTuple):
    """The nearest vectors of each query, nearest first.

    Attributes:
        ids: (Q, k) int64; −1 where fewer than k vectors are accepted.
        similarities: Inner products, (Q, k) float32; −∞ in those places.
    """

    ids: Ids
    similarities: Vectors

    def merged(self, other: Found) -> Found:
        """Merge with another answer to the same queries, to the k nearest of both."""
        similarities = np.concatenate([self.similarities, other.similarities], 1)
        order = np.argsort(-similarities, axis=1, kind="stable")[:, : self.ids.shape[1]]
        ids = np.concatenate([self.ids, other.ids], 1)
        return Found(*(np.take_along_axis(it, order, 1) for it in (ids, similarities)))


class VectorIndex(Protocol):
    """Vectors of norm 1 with ids and labels, searched by inner product."""

    def add(self, ids: Ids, vectors: Vectors, labels: Sequence[str | None]) -> None:
        """Add vectors.

        Args:
            ids: A new id ≥ 0 for each vector, (N,). Ids are never reused.
            vectors: (N, D), of norm 1.
            labels: One for each vector; None for unlabeled ones.

        Raises:
            ValueError: If the arguments are inconsistent, or an id already exists.
        """

    def remove(self, ids: Ids) -> None:
        """Remove vectors; unknown ids are ignored."""

    def search(self, queries: Vectors, k: int, labels: Collection[str] | None = None) -> Found:
        """Find the k nearest vectors of each query.

        Args:
            queries: (Q, D).
            k: Number of vectors, at least 1.
            labels: Restrict results to vectors with one of these labels; None accepts all.

        Raises:
            ValueError: If an argument is invalid.
        """

    def __len__(self) -> int: ...

    def close(self) -> None:
        """Release files and connections; the index cannot be used afterwards."""


def check_rows(size: int, ids: Any, vectors: Any, labels: Sequence[str | None]) -> None:
    """Check the arguments of an addition to an index of ``size`` dimensions.

    Raises:
        ValueError: If an argument is invalid; the message names it.
    """
    if vectors.ndim != 2 or vectors.shape[1] != size or vectors.dtype != np.float32:
        raise ValueError(
            f"vectors must be float32 of shape (N, {size}), got {vectors.dtype} of shape "
            f"{vectors.shape}"
        )
    if ids.shape != vectors.shape[:1] or ids.dtype != np.int64:
        raise ValueError(
            f"ids must be {len(vectors)} int64 numbers, got {ids.dtype} of shape {ids.shape}"
        )
    if len(labels) != len(vectors):
        raise ValueError(f"labels must be {len(vectors)}, got {len(labels)}")
    rising = bool((ids[1:] > ids[:-1]).all())  # the usual case, and much faster to check
    if len(ids) and (ids.min() < 0 or (not rising and len(np.unique(ids)) < len(ids))):
        raise ValueError("ids must be at least 0, and each different")


def check_queries(size: int, queries: Any, k: int) -> Vectors:
    """Return the queries as a contiguous float32 array.

    Raises:
        ValueError: If they do not have ``size`` dimensions, or k is less than 1.
    """
    array = np.ascontiguousarray(queries, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] != size:
        raise ValueError(f"queries must have the shape (Q, {size}), got {array.shape}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return array


def check_new(there: Ids, ids: Ids) -> None:
    """Check that none of ``ids`` is already ``there``.

    Raises:
        ValueError: If one is; the message names the first.
    """
    known = ids[np.isin(ids, there)] if len(there) else ids[:0]
    if len(known):
        raise ValueError(f"ids must be new, but {known[0]} is in the index already")
