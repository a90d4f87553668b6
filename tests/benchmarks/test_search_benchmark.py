"""The search benchmark runs, and holds what it measured against its targets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from search.small_index import picture, write_pictures

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def search(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("search")


def test_vectors_have_norm_1_and_copies_the_stated_cosine(search: ModuleType) -> None:
    for vectors in (search.mixture(50, 1), search.repeated(search.mixture(200, 3), 50, 2)):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    base = np.eye(128, dtype=np.float32)[:2]
    copies = search.repeated(np.concatenate([base] * 64), 500, 0)
    assert np.abs(copies[:, 0]).mean() == pytest.approx(0.9, abs=0.02)


def test_recall_is_the_share_that_was_found(search: ModuleType) -> None:
    assert search.recall(np.array([[1, 2], [5, 6]]), np.array([[2, 3], [6, 5]])) == 0.75


def made_up(ratio: float, recall: float) -> dict[str, Any]:
    row = {"recall": recall, "build_cpu_s": 1.0, "build_s": 2.0, "bytes": 10, "reach": 64}
    row |= {"ms": {"bare": 1.0, "store": ratio}, "ratio": {"bare": 1.0, "store": ratio}}
    part = {"set": "mixture", "vectors": 5, "dimensions": 2, "stores": {"hnsw": row}}
    return {"vectors": [part], "machine": {"device_name": "a", "torch": "2"}, "date": "2026-11-16"}


def test_targets_are_held_against_what_was_measured(search: ModuleType) -> None:
    results = made_up(1.2, 0.99)
    results["targets"] = search.targets(results)
    assert [it["met"] for it in results["targets"]] == [True, False]
    table = search.markdown(results)
    assert "| store over bare faiss (hnsw, mixture) | ≤ 1.1 | 1.2 | no |" in table
    assert "| mixture, 5 × 2 | hnsw | 0.990 | 1.0 | 2.0 | 0 | 64 | 1.000 | 1.200 |" in table


@pytest.mark.process
def test_a_run_stores_ratios_and_recall(search: ModuleType, tmp_path: Path) -> None:
    photos = write_pictures(tmp_path / "photos", 4)
    for number, path in enumerate(photos):
        picture(number, (300, 260)).save(path)
    options = ["--images", "4", "--vectors", "2000", "--sets", "mixture", "--parts", "vectors"]
    search.main(["--data", str(tmp_path / "photos"), "--out", str(tmp_path / "out"), *options])
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    stores = results["vectors"][0]["stores"]
    assert list(stores) == ["exact", "ivfpq", "hnsw"]
    assert stores["exact"]["recall"] == 1.0
    assert stores["hnsw"]["recall"] > 0.9
    assert set(stores["hnsw"]["ratio"]) == {"bare", "store", "Index.search"}
    assert results["runs"]["vectors"]["command"].startswith("python benchmarks/search.py --data")
