"""Laws of every vector index, against a loop over all pairs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search.store_vectors import unit
from sumpool.search.stores.base import VectorIndex
from sumpool.search.stores.catalog import check_store, open_store
from sumpool.search.stores.exact import ExactIndex
from sumpool.system.errors import UserError

N, D, Q = 300, 16, 7
LABELS = [None if i % 10 == 9 else f"class {i % 5}" for i in range(N)]
IDS = np.arange(N) * 3 + 5


VECTORS, QUERIES = unit(0, N, D), unit(1, Q, D)


def nearest(
    k: int, accepted: set[str] | None = None, gone: tuple[int, ...] = ()
) -> list[list[tuple[int, float]]]:
    """For each query the k best (id, similarity), by comparing all pairs."""
    out = []
    for query in QUERIES.astype(float):
        pairs = [
            (int(id), float(query @ vector))
            for id, vector, label in zip(IDS, VECTORS.astype(float), LABELS, strict=True)
            if (accepted is None or label in accepted) and id not in gone
        ]
        out.append(sorted(pairs, key=lambda pair: -pair[1])[:k])
    return out


def check(
    index: VectorIndex, k: int, accepted: set[str] | None = None, gone: tuple[int, ...] = ()
) -> None:
    """The index finds what the loop finds, with −1 and −∞ behind the last one."""
    found = index.search(QUERIES, k, labels=accepted)
    assert found.ids.shape == found.similarities.shape == (Q, k)
    assert (found.ids.dtype, found.similarities.dtype) == (np.int64, np.float32)
    for ids, similarities, expected in zip(*found, nearest(k, accepted, gone), strict=True):
        n = len(expected)
        assert ids[:n].tolist() == [id for id, _ in expected]
        assert similarities[:n] == pytest.approx([value for _, value in expected], abs=1e-6)
        assert (ids[n:] == -1).all()
        assert (similarities[n:] == -np.inf).all()


@pytest.fixture
def index() -> ExactIndex:
    index = ExactIndex(D)
    index.add(IDS, VECTORS, LABELS)
    return index


def test_exact_search_is_the_loop_over_all_pairs(index: ExactIndex) -> None:
    check(index, 10)


def test_filters_by_label_leave_only_accepted_images(index: ExactIndex) -> None:
    check(index, 10, {"class 2"})
    check(index, 10, {"class 0", "class 3", "of no image"})


def test_where_fewer_are_accepted_the_rest_is_minus_one(index: ExactIndex) -> None:
    check(index, 100, {"class 1"})
    check(index, 3, {"of no image"})
    check(index, 3, set())


def test_adding_in_parts_is_adding_at_once_and_removed_images_are_not_found() -> None:
    index = ExactIndex(D)
    for part in np.array_split(np.arange(N), 3):
        index.add(IDS[part], VECTORS[part], [LABELS[i] for i in part])
    check(index, 10)
    gone = tuple(pairs[0][0] for pairs in nearest(1))
    index.remove(np.array([*gone, 10**6]))
    assert len(index) == N - len(set(gone))
    check(index, 10, gone=gone)
    check(index, 10, {"class 2"}, gone=gone)


def test_vectors_on_disk_are_searched_where_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    index = open_store("exact", tmp_path, IDS, mapped, LABELS)
    assert isinstance(index, ExactIndex)
    assert np.shares_memory(index._vectors, mapped)
    check(index, 10)


def test_an_empty_or_closed_index_finds_nothing(index: ExactIndex) -> None:
    assert (ExactIndex(D).search(QUERIES, 2).ids == -1).all()
    index.close()
    assert len(index) == 0
    assert (index.search(QUERIES, 2, labels={"class 1"}).ids == -1).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"vectors": VECTORS[:, :3]}, r"vectors must be float32 of shape \(N, 16\), got float32 o"),
        ({"vectors": VECTORS.astype(float)}, "vectors must be float32 .* got float64"),
        ({"ids": IDS[1:]}, "ids must be 300 int64 numbers, got int64 of shape"),
        ({"ids": IDS.astype(float)}, "ids must be 300 int64 numbers, got float64"),
        ({"ids": IDS - 6}, "ids must be at least 0"),
        ({"ids": IDS * 0}, "each different"),
        ({"labels": LABELS[1:]}, "labels must be 300, got 299"),
    ],
)
def test_errors_name_the_argument(changed: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"ids": IDS, "vectors": VECTORS, "labels": LABELS}
    with pytest.raises(ValueError, match=message):
        ExactIndex(D).add(**(good | changed))


def test_ids_that_are_there_and_bad_queries_are_refused(index: ExactIndex) -> None:
    with pytest.raises(ValueError, match="ids must be new, but 8 is in the index already"):
        index.add(np.array([1, 8]), VECTORS[:2], [None, None])
    with pytest.raises(ValueError, match=r"queries must have the shape \(Q, 16\), got \(16,\)"):
        index.search(QUERIES[0], 3)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        index.search(QUERIES, 0)


def test_an_unknown_store_lists_the_choices() -> None:
    with pytest.raises(UserError, match=r"store must be auto, exact.* or milvus:URI, got 'annoy'"):
        check_store("annoy")


def test_a_missing_faiss_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"search needs faiss: pip install 'sumpool\[search\]'"):
        ExactIndex(D)
