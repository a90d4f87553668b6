"""Duplicates: the same content first, then chains of near images."""

from __future__ import annotations

import numpy as np
import pytest

from sumpool.search import duplicates
from sumpool.search.duplicates import Duplicates, find_duplicates

ANGLES = np.radians([0, 0, 90, 95, 100, 200, 270])
VECTORS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1).astype(np.float32)
IDS = np.array([10, 11, 12, 13, 14, 15, 16])
HASHES = ["a", "a", "b", "c", "d", "e", "f"]
NEAR = float(np.cos(np.radians(6)))


@pytest.mark.parametrize("block", [2, 3, 100])
def test_groups_are_same_content_then_chains(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(duplicates, "_BLOCK", block)
    exact, near = find_duplicates(VECTORS, IDS, HASHES, NEAR)
    assert exact == Duplicates((10, 11), True, 1.0)
    assert near.ids == (12, 13, 14)  # 12 and 14 are 10° apart, each 5° from 13
    assert near.similarity == pytest.approx(np.cos(np.radians(5)), abs=1e-6)


def test_chains_are_the_same_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    # 40 arcs of 5 images, mixed; images 1° apart are near, arcs are not.
    random = np.random.default_rng(0)
    angles = np.radians(random.permutation((9 * np.arange(40)[:, None] + np.arange(5)).ravel()))
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    images = vectors, np.arange(200), [str(it) for it in range(200)], float(np.cos(np.radians(1.5)))
    expected = find_duplicates(*images)
    assert [len(it.ids) for it in expected] == [5] * 40
    monkeypatch.setattr(duplicates, "_BLOCK", 7)
    monkeypatch.setattr(duplicates, "_EDGES", 3)
    assert find_duplicates(*images) == expected


def test_nothing_is_a_duplicate_of_what_is_far() -> None:
    assert find_duplicates(VECTORS[5:], IDS[5:], HASHES[5:], 0.9) == []


@pytest.mark.parametrize("threshold", [0, -1, 1.5])
def test_thresholds_outside_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\]"):
        find_duplicates(VECTORS, IDS, HASHES, threshold)
