"""Similarity thresholds with a stated meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sumpool.report.run.folder import DIGESTS, EVALUATION, RUN
from sumpool.system.digests import check_digests
from sumpool.system.files import StoreError

#: With labels, the share of pairs above the threshold that have the same class.
PRECISION = 0.9
#: Without labels, the share of unrelated pairs below the threshold, and the same quantile of a
#: normal distribution in standard deviations.
UNRELATED, DEVIATIONS = 0.999, 3.09
#: Number of sampled images, neighbors of each, and seed of the sample.
SAMPLE, NEIGHBORS, SEED = 1000, 10, 0
#: Minimum number of pairs to measure a precision on.
LEAST_PAIRS = 20


class Threshold(NamedTuple):
    """Similarity at which images count as similar.

    Attributes:
        value: The similarity.
        meaning: Description of how it was measured.
    """

    value: float
    meaning: str


def calibrate(vectors: NDArray[np.float32], labels: Sequence[str | None]) -> Threshold:
    """Measure the threshold of an index.

    With labels, it is the smallest similarity t such that 90 % of the pairs with similarity at
    least t have the same class, among pairs of an image and one of its ten nearest neighbors in
    the whole index. Without labels, or if no t is that precise, it is the similarity that 99.9 %
    of unrelated pairs stay below. Most pairs of a collection are unrelated, but its most similar
    ones are not, so the median and the width of the lower half of all pairs define a normal
    distribution of unrelated ones. Both are measured on at most 1,000 images.

    Args:
        vectors: Unit vectors, (N, D).
        labels: The class of each image; None for unlabeled ones.

    Example:
        >>> calibrate(np.eye(3, dtype=np.float32), [None] * 3).value
        0.0
    """
    chosen = _chosen(len(vectors))
    why = ""
    if any(label is not None for label in labels):
        found = _of_labels(vectors, labels, "indexed images")
        if found is not None:
            return found
        why = f"; no similarity separates the labels with {PRECISION:.0%} precision"
    sample = np.asarray(vectors[chosen])
    if len(sample) < 2:
        return Threshold(0.0, "not measured: there is one image")
    similarity = sample @ sample.T
    apart = similarity[np.triu_indices(len(sample), 1)]
    low, middle = np.quantile(apart, [0.1587, 0.5])  # one standard deviation apart
    return Threshold(
        _rounded(min(middle + DEVIATIONS * (middle - low), apart.max())),
        f"estimated on {len(chosen):,} indexed images, {UNRELATED:.1%} of unrelated pairs are less "
        f"similar{why}",
    )


def validation_threshold(run: Path) -> Threshold | None:
    """Measure the threshold on a run's validation images, whose classes its model has not learned.

    Args:
        run: The folder of the model; only finished runs have validation images.

    Returns:
        The threshold; None without such images, or if no similarity separates their classes.

    Raises:
        StoreError: If the stored embeddings are damaged.
    """
    part = f"{EVALUATION}/validation"
    files = [run / part / name for name in ("embeddings.npy", "labels.npy")]
    if not (run / RUN).is_file() or not all(it.is_file() for it in files):
        return None
    check_digests(run, DIGESTS, [part])
    try:
        vectors, labels = (np.load(it, allow_pickle=False) for it in files)
        if vectors.ndim != 2 or labels.shape != vectors.shape[:1]:
            raise ValueError(f"embeddings are {vectors.shape}, labels {labels.shape}")
    except (OSError, ValueError) as error:
        raise StoreError(f"{run / part} is damaged: {error}") from error
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return _of_labels(unit, labels.tolist(), f"validation images of the run {run.name}")


def _of_labels(vectors: NDArray[np.float32], labels: Sequence[Any], what: str) -> Threshold | None:
    chosen = _chosen(len(vectors))
    sample = np.asarray(vectors[chosen])
    value = least_precise(*_neighbor_pairs(vectors, sample, chosen, np.array(labels, dtype=object)))
    if value is None:
        return None
    return Threshold(
        value,
        f"measured on {len(chosen):,} {what}, {PRECISION:.0%} of near neighbors that are at least "
        "this similar have the same label",
    )


def _chosen(count: int) -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(SEED).permutation(count)[:SAMPLE])


def least_precise(
    similarity: NDArray[np.float32], same: NDArray[np.bool_], precision: float = PRECISION
) -> float | None:
    """Find the smallest threshold above which at least ``precision`` of the pairs are the same.

    Returns None if there is no such threshold, or too few pairs lie above it.

    Example:
        >>> close = np.array([0.9] * 30 + [0.5] * 30)
        >>> least_precise(close, close > 0.7)
        0.9
    """
    order = np.argsort(-similarity, kind="stable")
    ordered, hits = similarity[order], np.cumsum(same[order])
    counts = np.arange(1, len(order) + 1)
    # Pairs of equal similarity pass a threshold together.
    last = np.append(ordered[1:] != ordered[:-1], True) if len(order) else np.zeros(0, bool)
    good = last & (hits >= precision * counts) & (counts >= LEAST_PAIRS)
    return _rounded(ordered[good][-1]) if good.any() else None


def _neighbor_pairs(
    vectors: NDArray[np.float32],
    sample: NDArray[np.float32],
    chosen: NDArray[np.int64],
    labels: NDArray[np.object_],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    best: NDArray[np.float32] = np.zeros((len(sample), 0), np.float32)
    places: NDArray[np.int64] = np.zeros((len(sample), 0), np.int64)
    step = 16_384
    for start in range(0, len(vectors), step):
        part = np.arange(start, min(start + step, len(vectors)))
        similarity = sample @ np.asarray(vectors[part]).T
        similarity[chosen[:, None] == part[None, :]] = -np.inf
        best = np.concatenate([best, similarity], 1)
        places = np.concatenate([places, np.broadcast_to(part, similarity.shape)], 1)
        order = np.argpartition(-best, min(NEIGHBORS, best.shape[1]) - 1, axis=1)[:, :NEIGHBORS]
        best = np.take_along_axis(best, order, 1)
        places = np.take_along_axis(places, order, 1)
    own, other = np.repeat(labels[chosen], best.shape[1]), labels[places.reshape(-1)]
    there = np.isfinite(best.reshape(-1)) & (own != None) & (other != None)  # noqa: E711
    return best.reshape(-1)[there], (own == other)[there]


def _rounded(value: float) -> float:
    return round(float(value), 4)
