"""Hulls: areas and overlaps of shapes whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from sumpool.studies.shared.hulls import (
    convex_hull,
    hull_overlap,
    inside,
    intersection,
    meet,
    meeting_pairs,
    overlap,
    pack_hulls,
    polygon_area,
    unpack_hulls,
)

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
POINT = np.array([[0.5, 0.5]])
SEGMENT = np.array([[0.0, 0.0], [2.0, 2.0]])
seeds = st.integers(0, 2**31)


def random_hull(seed: int, points: int = 12) -> np.ndarray:
    return convex_hull(np.random.default_rng(seed).normal(size=(points, 2)))


@given(seeds)
def test_hull_has_the_corners_and_area_of_qhull(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(30, 2))
    hull, oracle = convex_hull(points), ConvexHull(points)
    assert {tuple(p) for p in hull} == {tuple(p) for p in points[oracle.vertices]}
    assert polygon_area(hull) == pytest.approx(oracle.volume)
    assert inside(hull, points.mean(0, keepdims=True)).all()


def test_points_on_an_edge_are_no_corners() -> None:
    points = np.concatenate([SQUARE, SQUARE, [[0.5, 0.0], [0.5, 0.5]]])
    np.testing.assert_array_equal(convex_hull(points), SQUARE)


def test_one_point_and_a_line_have_hulls_without_area() -> None:
    np.testing.assert_array_equal(convex_hull(np.repeat(POINT, 3, 0)), POINT)
    line = convex_hull(np.array([[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]]))
    np.testing.assert_array_equal(line, SEGMENT)
    assert polygon_area(POINT) == polygon_area(SEGMENT) == 0
    points = np.array([[1.0, 1.0], [3.0, 3.0], [1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_array_equal(inside(SEGMENT, points), [True, False, False, True])
    np.testing.assert_array_equal(inside(POINT, points), [False, False, False, True])


@pytest.mark.parametrize(
    ("shift", "share"),
    [
        ((0.5, 0.0), 0.5),
        ((0.5, 0.5), 0.25),
        ((0.0, 0.0), 1.0),
        ((1.0, 1.0), 0.0),
        ((3.0, 0.0), 0.0),
    ],
)
def test_shifted_squares_overlap_by_what_they_share(
    shift: tuple[float, float], share: float
) -> None:
    assert overlap(SQUARE, SQUARE + shift) == pytest.approx(share)


def test_a_hull_inside_another_overlaps_wholly() -> None:
    assert overlap(SQUARE, 4 * SQUARE - 1) == pytest.approx(1)
    assert overlap(4 * SQUARE - 1, SQUARE) == pytest.approx(1)
    assert overlap(POINT, SQUARE) == 1
    assert overlap(SEGMENT, SQUARE) == 0.5  # one end of two lies in it
    assert overlap(POINT + 1, SQUARE) == 0


@given(seeds, seeds)
def test_intersection_is_symmetric_and_lies_in_both(first: int, second: int) -> None:
    a, b = random_hull(first), random_hull(second) + 0.5
    shared = intersection(a, b)
    assert polygon_area(shared) == pytest.approx(polygon_area(intersection(b, a)), abs=1e-12)
    assert polygon_area(shared) <= min(polygon_area(a), polygon_area(b)) + 1e-12
    if len(shared) > 2:
        middle = shared.mean(0, keepdims=True)
        assert inside(a, middle).all()
        assert inside(b, middle).all()


def test_hulls_that_touch_in_a_corner_meet_without_overlap() -> None:
    touching, apart = SQUARE + 1, SQUARE + 1.001
    assert meet(SQUARE, touching)
    assert overlap(SQUARE, touching) == 0
    assert not meet(SQUARE, apart)
    assert meet(SQUARE, POINT)
    assert meet(SEGMENT, SQUARE)
    assert not meet(POINT, SEGMENT + np.array([1, 0]))
    assert meeting_pairs([SQUARE, touching, SQUARE + 5]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("start", "end", "meets"),
    [
        ((0.0, 2.0), (2.0, 0.0), True),  # crosses the diagonal
        ((0.0, 2.0), (1.0, 1.0), True),  # touches it between its ends
        ((2.0, 2.0), (3.0, 0.0), True),  # touches its end
        ((1.0, 1.0), (3.0, 3.0), True),  # collinear, overlapping
        ((0.5, 0.5), (1.5, 1.5), True),  # collinear, inside
        ((2.5, 2.5), (3.0, 3.0), False),  # collinear, beyond its end
        ((0.0, 0.5), (1.0, 1.5), False),  # parallel
        ((0.0, 2.0), (0.75, 1.25), False),  # ends before it
        ((2.0, 4.0), (4.0, 2.0), False),  # crosses its line beyond its end
        ((1.0, 1.0), (1.0, 1.0), True),  # a point on it
        ((1.0, 1.5), (1.0, 1.5), False),  # a point beside it
    ],
)
def test_segments_meet_if_they_share_a_point(
    start: tuple[float, float], end: tuple[float, float], meets: bool
) -> None:
    other = convex_hull(np.array([start, end]))
    for a, b in ((SEGMENT, other), (other, SEGMENT), (SEGMENT[::-1], other)):
        assert meet(a, b) is meets


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), seeds)
def test_packed_hulls_are_unpacked(dtype: type[np.floating], sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    hulls = [rng.normal(size=(size, 2)) for size in sizes]
    packed = pack_hulls("class", hulls, dtype)
    assert packed["class_corners"].dtype == dtype
    assert packed["class_sizes"].tolist() == sizes
    for found, hull in zip(unpack_hulls(packed, "class"), hulls, strict=True):
        np.testing.assert_array_equal(found, hull.astype(dtype))


def test_hulls_that_share_a_far_corner_meet() -> None:
    # The fans of average pooling: each class with its own tokens, all with the same background.
    hub = np.array([0.013, -0.007])
    fans = [
        convex_hull(np.array([hub, [np.cos(t), np.sin(t)], [np.cos(t + 0.1), np.sin(t + 0.1)]]))
        for t in np.arange(16) * 2 * np.pi / 16
    ]
    assert meeting_pairs(fans) == 1


def test_overlap_of_classes_counts_intruders_and_pairs() -> None:
    left, right, far = SQUARE, SQUARE + np.array([0.5, 0]), SQUARE + 9
    embeddings = np.concatenate([left, [[0.75, 0.5]], right, [[1.4, 0.9]], far, far[:1]])
    labels = np.repeat([0, 1, 2], 5)
    measured = hull_overlap(embeddings, labels)
    # Of 15 samples, two corners and the inner point of the left lie in the right square, and two
    # corners of the right in the left; the edge counts.
    assert measured.samples_inside_others == pytest.approx(5 / 15)
    assert measured.mean_overlap == pytest.approx(0.5 / 3)
    assert measured.overlapping_pairs == pytest.approx(1 / 3)
    assert [len(hull) for hull in measured.hulls] == [4, 4, 4]


def test_one_class_has_nothing_to_overlap_with() -> None:
    with pytest.raises(ValueError, match="labels must name at least two classes, got 1"):
        hull_overlap(SQUARE, np.zeros(4, dtype=int))
