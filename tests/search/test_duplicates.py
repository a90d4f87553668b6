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


def test_nothing_is_a_duplicate_of_what_is_far() -> None:
    assert find_duplicates(VECTORS[5:], IDS[5:], HASHES[5:], 0.9) == []


@pytest.mark.parametrize("threshold", [0, -1, 1.5])
def test_thresholds_outside_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\]"):
        find_duplicates(VECTORS, IDS, HASHES, threshold)
