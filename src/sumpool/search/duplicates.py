"""Groups of images that are the same, or nearly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from tqdm import tqdm

#: Similarity from which on images count as near-duplicates.
NEAR = 0.95
#: Rows that are compared at once.
_BLOCK = 2048


@dataclass(frozen=True)
class Duplicates:
    """Images that are the same.

    Attributes:
        ids: Their ids, ascending.
        exact: Whether their content is the same byte for byte.
        similarity: The least similarity of an image to the one most similar to it in the group.
    """

    ids: tuple[int, ...]
    exact: bool
    similarity: float


def find_duplicates(
    vectors: NDArray[np.float32],
    ids: NDArray[np.int64],
    hashes: list[str],
    threshold: float = NEAR,
    *,
    progress: bool = False,
) -> list[Duplicates]:
    """Groups of duplicates: first those with the same content, then those that are near.

    Near-duplicates are connected: an image belongs to a group if it is at least ``threshold``
    similar to one image of it. Images with the same content stand in a group of near-duplicates
    with the first of them.

    Args:
        vectors: Vectors of length 1, (N, D).
        ids: The id of each image, (N,).
        hashes: The digest of the content of each.
        threshold: Least similarity, in (0, 1].
        progress: Whether to show a progress bar.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
    same: defaultdict[str, list[int]] = defaultdict(list)
    for row, content in enumerate(hashes):
        same[content].append(row)
    exact = [
        Duplicates(tuple(ids[rows].tolist()), True, 1.0) for rows in same.values() if len(rows) > 1
    ]
    first = np.array([rows[0] for rows in same.values()])
    pairs = list(_near_pairs(vectors, first, threshold, progress))
    near = [] if not pairs else _groups(first, ids, *map(np.concatenate, zip(*pairs, strict=True)))
    return [*exact, *near]


def _near_pairs(
    vectors: NDArray[np.float32], rows: NDArray[np.int64], threshold: float, progress: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
    """Places in ``rows`` of pairs, the first below the second, and their similarity."""
    count = len(rows)
    with tqdm(total=count, desc="comparing", unit=" images", disable=not progress) as bar:
        for a in range(0, count, _BLOCK):
            left = np.asarray(vectors[rows[a : a + _BLOCK]])
            for b in range(a, count, _BLOCK):
                similarity = left @ np.asarray(vectors[rows[b : b + _BLOCK]]).T
                i, j = np.nonzero(similarity >= threshold)
                above = i + a < j + b
                i, j = i[above], j[above]
                yield i + a, j + b, similarity[i, j]
            bar.update(len(left))


def _groups(
    rows: NDArray[np.int64],
    ids: NDArray[np.int64],
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    similarity: NDArray[np.float32],
) -> list[Duplicates]:
    graph = coo_array((np.ones(len(i), bool), (i, j)), shape=(len(rows), len(rows)))
    component = connected_components(graph, directed=False)[1]
    nearest = np.zeros(len(rows), np.float32)
    np.maximum.at(nearest, np.concatenate([i, j]), np.concatenate([similarity, similarity]))
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place in np.union1d(i, j).tolist():
        members[int(component[place])].append(place)
    groups = [
        Duplicates(tuple(sorted(ids[rows[places]].tolist())), False, float(nearest[places].min()))
        for places in members.values()
    ]
    key: Callable[[Duplicates], tuple[float, tuple[int, ...]]] = lambda it: (-it.similarity, it.ids)  # noqa: E731
    return sorted(groups, key=key)
