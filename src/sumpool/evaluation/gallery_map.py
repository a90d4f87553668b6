"""A reproducible map of embeddings in two dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Below this number of points, t-SNE has too few neighbors to preserve.
FEWEST_FOR_TSNE = 30
PERPLEXITY = 30.0
#: Half of scikit-learn's default; the map hardly changes afterwards.
ITERATIONS = 500


def flatten_to_plane(
    vectors: NDArray[np.float32], seed: int = 0
) -> tuple[NDArray[np.float32], str]:
    """Map embeddings (N, D), N ≥ 3, to points (N, 2); also return the name of the method.

    The method is t-SNE [tsne] with ``seed``, or principal components if there are few points.
    """
    if len(vectors) < FEWEST_FOR_TSNE:
        return principal_plane(vectors), "PCA"
    # Imported here because it takes a second.
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    start = principal_plane(vectors)
    start *= 1e-4 / max(float(start[:, 0].std()), 1e-12)
    # One thread, because sums in another order would lead to another map.
    with threadpool_limits(limits=1):
        method = TSNE(perplexity=perplexity, max_iter=ITERATIONS, init=start, random_state=seed)
        points = method.fit_transform(vectors)
    return np.asarray(points, np.float32), "t-SNE"


def principal_plane(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the first two principal components, (N, 2), each with its largest entry positive."""
    centered = np.asarray(vectors, np.float64) - np.mean(vectors, 0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
    plane = np.zeros((len(vectors), 2))
    width = min(2, len(sizes))
    plane[:, :width] = left[:, :width] * sizes[:width]
    largest = np.abs(plane).argmax(0)
    signs = np.where(plane[largest, [0, 1]] < 0, -1.0, 1.0)
    return np.asarray(plane * signs, np.float32)
