"""Thresholds have the meaning that they state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search.small_index import clusters
from sumpool.search.threshold import calibrate, least_precise


def neighbor_pairs(
    vectors: NDArray[np.float32], labels: list[str]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Similarity and sameness of every image and each of its ten nearest, with loops."""
    pairs = []
    for row in range(len(vectors)):
        similarity = vectors @ vectors[row]
        similarity[row] = -2
        for other in np.argsort(-similarity)[:10]:
            pairs.append((similarity[other], labels[row] == labels[other]))  # noqa: PERF401
    similarity, same = zip(*pairs, strict=True)
    return np.array(similarity), np.array(same)


def test_nine_of_ten_pairs_above_it_share_a_label() -> None:
    vectors, labels = clusters(0.55)
    threshold = calibrate(vectors, labels)
    similarity, same = neighbor_pairs(vectors, labels)
    assert "have the same label" in threshold.meaning
    assert same[similarity >= threshold.value].mean() >= 0.9 - 0.01  # it is rounded
    assert same.mean() < 0.9
    # Pairs a little farther no longer do: it is the smallest such threshold.
    lower = np.unique(similarity[similarity < threshold.value - 1e-4])[::-1]
    shares = [same[similarity >= it].mean() for it in lower]
    assert max(shares) < 0.9 + 0.01


def test_without_labels_unrelated_pairs_are_below_it_and_related_ones_above() -> None:
    # A tenth of all pairs is related: many more than the pairs it leaves above it among strangers.
    rng = np.random.default_rng(0)
    strangers = rng.normal(size=(300, 64))
    families = np.repeat(rng.normal(size=(10, 64)), 30, axis=0) + 0.5 * rng.normal(size=(300, 64))
    for vectors, related in ((strangers, False), (families, True)):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        threshold = calibrate(vectors.astype(np.float32), [None] * 300)
        similarity = vectors @ vectors.T
        same = np.kron(np.eye(10), np.ones((30, 30))) > 0 if related else np.eye(300) > 0
        assert (similarity[~same] < threshold.value).mean() > 0.997
        assert (similarity[same] >= threshold.value).mean() > 0.99
        assert "99.9% of unrelated pairs are less similar" in threshold.meaning


def test_labels_that_cannot_be_separated_are_said_to_be() -> None:
    vectors, labels = clusters(0.5)
    shuffled = np.random.default_rng(1).permutation(labels).tolist()
    threshold = calibrate(vectors, shuffled)
    assert "no similarity separates the labels" in threshold.meaning


def test_few_pairs_are_no_precision() -> None:
    similarity = np.linspace(0, 1, 19, dtype=np.float32)
    assert least_precise(similarity, np.ones(19, bool)) is None


def test_one_image_has_a_threshold() -> None:
    assert calibrate(np.ones((1, 1), np.float32), [None]).value == 0
