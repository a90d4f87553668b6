"""Milvus Lite finds what faiss finds; a cluster is spoken to by the same client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from search.store_vectors import unit
from sumpool.search.stores.base import VectorIndex
from sumpool.search.stores.catalog import open_store
from sumpool.search.stores.milvus import MilvusIndex
from sumpool.system.errors import UserError

N, D = 2000, 32
VECTORS, QUERIES, IDS = unit(0, N, D), unit(1, 30, D), np.arange(N) * 2
HOSTILE = [
    'quote "',
    "apostrophe '",
    "back\\slash",
    "new\nline",
    '"] or id > 0 or label in ["',
    "é漢",
]
NAMES: list[str | None] = ["wren", "robin", *HOSTILE, None]
LABELS = [NAMES[i % len(NAMES)] for i in range(N)]


def same(milvus: VectorIndex, exact: VectorIndex, labels: set[str] | None) -> None:
    found, expected = (it.search(QUERIES, 10, labels=labels) for it in (milvus, exact))
    assert (found.ids == expected.ids).all()
    np.testing.assert_allclose(found.similarities, expected.similarities, atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("pymilvus", "milvus_lite"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'sumpool[milvus]'")
    return tmp_path_factory.mktemp("milvus")


@pytest.fixture(scope="module")
def milvus(folder: Path) -> Iterator[VectorIndex]:
    index = open_store("milvus:store.db", folder, IDS, VECTORS, LABELS, build=True)
    yield index
    index.close()


@pytest.mark.process  # its server takes seconds to start
@pytest.mark.xdist_group("milvus")
class TestLite:
    @pytest.mark.parametrize("label", [None, "wren", *HOSTILE, "of no image"])
    def test_the_top_10_are_those_of_faiss_with_every_filter(
        self, label: str | None, milvus: VectorIndex, folder: Path
    ) -> None:
        exact = open_store("exact", folder, IDS, VECTORS, LABELS)
        same(milvus, exact, None if label is None else {label, "robin"})
        same(milvus, exact, None if label is None else {label})
        same(milvus, exact, set())

    def test_a_collection_follows_the_vectors_by_id_version_and_label(
        self, milvus: VectorIndex, folder: Path
    ) -> None:
        kept = slice(300, None)
        vectors, versions, labels = VECTORS.copy(), np.zeros(N, np.uint32), LABELS.copy()
        vectors[400], versions[400], labels[500] = -VECTORS[400], 7, "owl"
        given = (IDS[kept], vectors[kept], labels[kept])
        store = "milvus:store.db#second"
        first = open_store(store, folder, IDS[:1000], VECTORS[:1000], LABELS[:1000], build=True)
        assert len(first) == 1000
        first.close()
        with pytest.raises(UserError, match=r"holds 1,000 vectors, and .* 1,700: bring it up to"):
            open_store(store, folder, *given)
        second = open_store(store, folder, *given, versions[kept], build=True)
        assert isinstance(second, MilvusIndex)
        second._client.release_collection("second")  # as when its server starts
        second.close()
        second = open_store(store, folder, *given)
        exact = open_store("exact", folder, *given)
        assert len(second) == 1700
        for accepted in (None, {"owl"}, {"wren"}):
            same(second, exact, accepted)
        assert len(milvus) == N  # another collection
        with pytest.raises(UserError, match="is not of vectors of 16 dimensions: name another"):
            open_store(store, folder, IDS, VECTORS[:, :16].copy(), LABELS)
        with pytest.raises(ValueError, match="k must be at most 16,384 with Milvus, got 20,000"):
            second.search(QUERIES, 20_000)
        second.close()


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("milvus:", "store must be auto, exact, .* or milvus:URI, got 'milvus:'"),
        ("milvus:store", r"store must be milvus:http://HOST:PORT or end in .db, got 'store'"),
        ("milvus:http://me:secret@host:1", "store must hold no password, .* set MILVUS_TOKEN inst"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(store: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as failure:
        open_store(store, tmp_path, IDS, VECTORS, LABELS)
    assert "secret" not in str(failure.value)
