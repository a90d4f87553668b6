"""Approximate stores: what they find, and how their files follow the vectors."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from search.store_vectors import unit
from sumpool.search.stores import catalog
from sumpool.search.stores.approximate import ApproximateIndex
from sumpool.search.stores.catalog import open_store, store_file
from sumpool.search.stores.exact import ExactIndex
from sumpool.system.errors import UserError
from sumpool.system.files import StoreError

N, D = 1500, 16
VECTORS, QUERIES, IDS = unit(0, N, D), unit(1, 20, D), np.arange(N) + 4
LABELS = [f"class {i % 2}" if i % 50 else "rare" for i in range(N)]

kinds = pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])


def build(folder: Path, kind: str, rows: slice = slice(None), build: bool = True) -> ExactIndex:
    index = open_store(kind, folder, IDS[rows], VECTORS[rows], LABELS[rows], build=build)
    assert isinstance(index, ApproximateIndex)
    return index


def exact(rows: slice = slice(None)) -> ExactIndex:
    index = ExactIndex(D)
    index.add(IDS[rows], VECTORS[rows], LABELS[rows])
    return index


def recall(index: ExactIndex, expected: ExactIndex, labels: set[str] | None = None) -> float:
    found = index.search(QUERIES, 10, labels=labels)
    wanted = expected.search(QUERIES, 10, labels=labels)
    near = np.isclose(found.similarities[:, :1], wanted.similarities[:, :1], atol=1e-6)
    assert near.mean() > 0.9  # similarities are those of the vectors themselves
    return float(
        np.mean([np.isin(a, b).mean() for a, b in zip(found.ids, wanted.ids, strict=True)])
    )


@kinds
def test_nearly_all_neighbors_are_found_with_and_without_filters(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        index = build(tmp_path, kind)
    assert f"{kind}: 1,500 vectors of 16 dimensions" in caplog.text
    assert "recall@10" in caplog.text
    assert recall(index, exact()) >= 0.97
    assert recall(index, exact(), {"class 1"}) >= 0.97
    assert recall(index, exact(), {"rare"}) == 1.0  # few enough to compare all
    assert (index.search(QUERIES, 10, labels={"of no image"}).ids == -1).all()


@kinds
def test_a_file_follows_the_vectors_by_id_and_version(kind: str, tmp_path: Path) -> None:
    build(tmp_path, kind, slice(0, 1000))
    index = build(tmp_path, kind, slice(200, 1500))
    assert recall(index, exact(slice(200, 1500))) >= 0.97
    assert not np.isin(index.search(VECTORS[:20], 10).ids, IDS[:200]).any()
    before = store_file(tmp_path, kind).stat().st_mtime_ns
    build(tmp_path, kind, slice(300, 1500), build=False)  # only fewer: nothing is written
    assert store_file(tmp_path, kind).stat().st_mtime_ns == before
    other, versions = VECTORS.copy(), np.zeros(N, np.uint32)
    other[700], versions[700] = -VECTORS[700], 9
    changed = open_store(kind, tmp_path, IDS, other, LABELS, versions, build=True)
    assert changed.search(-VECTORS[700:701], 1).ids.tolist() == [[704]]
    assert 704 not in changed.search(VECTORS[700:701], 10).ids


@kinds
def test_the_protocol_holds_without_a_folder(kind: str, tmp_path: Path) -> None:
    index = ApproximateIndex(tmp_path / "store", kind, D, build=True)
    for part in (slice(0, 900), slice(900, 1500)):
        index.add(IDS[part], VECTORS[part], LABELS[part])
    index.remove(IDS[:100])
    assert len(index) == 1400
    assert recall(index, exact(slice(100, 1500))) >= 0.97
    found = index.search(QUERIES, 1400)
    assert (found.ids[:, :10] >= 104).all()
    assert ((found.ids < 0) == np.isinf(found.similarities)).all()
    index.remove(IDS)
    assert (index.search(QUERIES, 3).ids == -1).all()
    index.close()
    assert (index.search(QUERIES, 3).ids == -1).all()


@kinds
def test_neighbors_are_found_near_vectors_that_are_gone_or_filtered_out(
    kind: str, tmp_path: Path
) -> None:
    # Twenty clusters; the queries lie in one that is removed, or filtered out.
    random = np.random.default_rng(0)
    cluster = random.permutation(np.repeat(np.arange(20), 200))
    centers = random.normal(size=(20, 16))
    noise = random.normal(size=(len(cluster) + 20, 16))
    near = np.concatenate([centers[cluster], np.repeat(centers[:1], 20, 0)]) + 0.3 * noise
    near = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)
    vectors, queries = near[:-20], np.ascontiguousarray(near[-20:])
    ids, labels = np.arange(len(vectors)), [f"class {it}" for it in cluster]
    open_store(kind, tmp_path, ids, vectors, labels, build=True).close()
    stays = cluster != 0
    kept = ids[stays], vectors[stays], [it for it in labels if it != "class 0"]
    index, wanted = open_store(kind, tmp_path, *kept), ExactIndex(16)
    wanted.add(*kept)
    for accepted in (None, {f"class {it}" for it in range(1, 6)}):
        found, expected = (it.search(queries, 10, accepted).ids for it in (index, wanted))
        assert np.mean([np.isin(a, b).mean() for a, b in zip(expected, found, strict=True)]) > 0.95


@kinds
def test_vectors_that_the_file_lacks_are_found_too(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build(tmp_path, kind, slice(0, 1400))
    index = build(tmp_path, kind, build=False)
    assert "lacks 100 vectors, which are compared one by one until" in caplog.text
    assert recall(index, exact()) >= 0.97
    assert (index.search(VECTORS[1400:], 1).ids[:, 0] == IDS[1400:]).all()


@kinds
def test_no_image_is_found_twice_in_a_file_of_other_vectors(kind: str, tmp_path: Path) -> None:
    rows, versions = np.arange(300), np.arange(300, dtype=np.uint32)
    labels = [None] * 300
    open_store(kind, tmp_path, rows, unit(2, 300, D), labels, versions, build=True).close()
    versions[::2] += 1000  # these changed since
    index = open_store(kind, tmp_path, rows, unit(3, 300, D), labels, versions)
    assert all(len(set(it)) == 10 for it in index.search(QUERIES, 10).ids)


def test_nothing_is_built_unasked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"lacks 1,500 vectors: .*--update --store hnsw"):
        build(tmp_path, "hnsw", build=False)
    assert not any(tmp_path.iterdir())


def test_auto_is_exact_until_an_approximate_store_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalog, "EXACT", 1000)
    index = open_store("auto", tmp_path, IDS, VECTORS, LABELS, build=True)
    assert type(index) is ExactIndex
    assert "1,500 vectors are compared one by one; sumpool index" in caplog.text
    build(tmp_path, "ivfpq")
    assert type(open_store("auto", tmp_path, IDS, VECTORS, LABELS)) is ApproximateIndex


def test_approximate_is_the_store_with_the_best_recall(tmp_path: Path) -> None:
    open_store("approximate", tmp_path, IDS, VECTORS, LABELS, build=True)
    assert {path.name for path in tmp_path.iterdir()} == {"store-ivfpq.faiss", "store-ivfpq.sha256"}


@kinds
def test_few_vectors_are_found_too_and_more_get_their_file(kind: str, tmp_path: Path) -> None:
    for number in (1, 8, 15):
        few = slice(0, number)
        for builds in (True, False):
            found = build(tmp_path, kind, few, build=builds).search(QUERIES, 10)
            np.testing.assert_array_equal(found.ids, exact(few).search(QUERIES, 10).ids)
    many = slice(0, 40)
    assert recall(build(tmp_path, kind, many), exact(many)) > 0.9
    assert store_file(tmp_path, kind).is_file()
    build(tmp_path, kind, slice(0, 3), build=False)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_damaged_file_is_named_with_what_to_do(share: float, tmp_path: Path) -> None:
    build(tmp_path, "hnsw", slice(0, 200))
    path = store_file(tmp_path, "hnsw")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"store-hnsw.faiss is damaged: remove it, and build it "):
        build(tmp_path, "hnsw", slice(0, 200))


def test_a_file_of_other_vectors_and_large_ids_are_refused(tmp_path: Path) -> None:
    build(tmp_path, "hnsw", slice(0, 200))
    with pytest.raises(UserError, match="is of 16 dimensions, not 8"):
        open_store("hnsw", tmp_path, IDS, VECTORS[:, :8].copy(), LABELS)
    with pytest.raises(ValueError, match="ids must be less than 2³¹, got 2147483648"):
        ApproximateIndex(tmp_path / "store", "hnsw", D).add(
            np.array([1 << 31]), VECTORS[:1], [None]
        )


@kinds
def test_losses_in_the_same_process_do_not_matter(kind: str, tmp_path: Path) -> None:
    import pytorch_metric_learning.utils.inference  # noqa: F401  (replaces the search of faiss)

    assert recall(build(tmp_path, kind), exact()) > 0.9


@kinds
def test_every_kind_of_damage_to_a_file_is_found_when_it_is_opened(
    kind: str, tmp_path: Path
) -> None:
    build(tmp_path, kind)
    path = store_file(tmp_path, kind)
    sound = path.read_bytes()
    for place in np.random.default_rng(0).integers(len(sound), size=8).tolist():
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(StoreError, match=f"{path} is damaged: remove it, and build it again"):
            build(tmp_path, kind, build=False)
    path.unlink()
    build(tmp_path, kind)  # the digest of the file that is gone does not matter
    build(tmp_path, kind, slice(0, 1400), build=False)
