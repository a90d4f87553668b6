"""Train faiss indexes before vectors are added to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sumpool.search.stores.base import Vectors

#: Neighbors of a graph node, and candidates when it is linked.
LINKS, CONSTRUCTION = 32, 100
#: Training vectors per cell.
TRAINING = 40
#: Values of a 4-bit code, and the minimum number of vectors to learn one.
CODES = 16


def train_index(faiss: Any, kind: str, vectors: Vectors) -> Any:
    """Return an index without vectors, trained for these.

    Args:
        faiss: The imported library.
        kind: "hnsw" or "ivfpq".
        vectors: (N, D), at least :data:`CODES` for "ivfpq".
    """
    product = faiss.METRIC_INNER_PRODUCT
    n, size = vectors.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(size, LINKS, product)
        index.hnsw.efConstruction = CONSTRUCTION
    else:
        cells = max(1, min(round(2 * math.sqrt(n)), n // TRAINING))
        pieces = size // 2 if size % 2 == 0 else size
        index = faiss.index_factory(size, f"IVF{cells},PQ{pieces}x4fs", product)
        for settings in (index.cp, index.pq.cp):
            settings.min_points_per_centroid = 1  # silences warnings for small indexes
        sample = np.random.default_rng(0).permutation(n)[: TRAINING * cells]
        index.train(np.ascontiguousarray(vectors[np.sort(sample)]))
    return faiss.IndexIDMap(index)
