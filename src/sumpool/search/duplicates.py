"""Groups of duplicate and near-duplicate images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from tqdm import tqdm

#: Similarity at which images count as near-duplicates.
NEAR = 0.95
#: Rows compared at a time.
_BLOCK = 2048
#: Pairs kept at a time.
_EDGES = 10_000_000


@dataclass(frozen=True)
class Duplicates:
    """A group of duplicates.

    Attributes:
        ids: Ids of the images, ascending.
        exact: Whether the images are identical byte for byte.
        similarity: Smallest similarity of an image to its nearest neighbor in the group.
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
    """Find groups of duplicates: first identical images, then near-duplicates.

    Near-duplicates are chained: an image belongs to a group if its similarity to at least one
    member reaches ``threshold``. Of identical images, only the first is in a group of
    near-duplicates.

    Args:
        vectors: Unit vectors, (N, D).
        ids: The id of each image, (N,).
        hashes: The content digest of each image.
        threshold: Minimum similarity, in (0, 1].
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
    return [*exact, *_groups(first, ids, _near_pairs(vectors, first, threshold, progress))]


def _near_pairs(
    vectors: NDArray[np.float32], rows: NDArray[np.int64], threshold: float, progress: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
    """Yield indices i < j into ``rows`` of near-duplicate pairs, and their similarities."""
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
    pairs: Iterable[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]],
) -> list[Duplicates]:
    nearest = np.zeros(len(rows), np.float32)
    edges: list[NDArray[np.int64]] = [np.empty((2, 0), np.int64)]
    held = 0
    for i, j, similarity in pairs:
        if not len(i):
            continue
        for ends in (i, j):
            np.maximum.at(nearest, ends, similarity)
        edges.append(np.stack([i, j]))
        held += len(i)
        if held > _EDGES:
            # An edge from each place to the first one of its component says the same.
            _, first, place = np.unique(
                _components(edges, len(rows)), return_index=True, return_inverse=True
            )
            edges, held = [np.stack([np.arange(len(rows)), first[place]])], 0
    component = _components(edges, len(rows))
    members: defaultdict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(nearest).tolist():
        members[int(component[row])].append(row)
    groups = [
        Duplicates(tuple(sorted(ids[rows[places]].tolist())), False, float(nearest[places].min()))
        for places in members.values()
    ]
    return sorted(groups, key=lambda it: (-it.similarity, it.ids))


def _components(edges: list[NDArray[np.int64]], count: int) -> NDArray[np.int32]:
    i, j = np.concatenate(edges, 1)
    graph = coo_array((np.ones(len(i), bool), (i, j)), shape=(count, count))
    component: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return component
