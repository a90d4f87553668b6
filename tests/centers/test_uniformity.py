"""Measures of centers against loops."""

from __future__ import annotations

import math

import pytest
import torch

from centers.naive_centers import apart, flat, mean, random_centers, rows_of
from sumpool.centers import center_uniformity


@pytest.mark.parametrize("shape", [(2, 3), (9, 4), (5, 3, 4)])
def test_measures_equal_loops(shape: tuple[int, ...]) -> None:
    centers = random_centers(*shape)
    rows = rows_of(centers)
    found = center_uniformity(centers)
    assert found.mean_cosine == pytest.approx(mean(flat(rows, lambda s: s)))
    assert found.nearest_cosine == pytest.approx(mean([max(row) for row in rows]))
    assert found.mean_distance == pytest.approx(mean(flat(rows, apart)))
    crowding = mean([math.exp(-2 * d * d) for d in flat(rows, apart)])
    assert found.uniformity == pytest.approx(math.log(crowding))


def test_orthogonal_centers_have_uniformity_minus_four() -> None:
    found = center_uniformity(torch.eye(50))
    assert found == pytest.approx((0.0, 0.0, math.sqrt(2), -4.0))


def test_equal_centers_are_least_even() -> None:
    found = center_uniformity(torch.ones(5, 4))
    assert found.nearest_cosine == pytest.approx(1.0)
    assert found.uniformity == pytest.approx(0.0, abs=1e-5)
    assert found.mean_distance == pytest.approx(0.0, abs=1e-3)


def test_fewer_than_two_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="centers must have shape"):
        center_uniformity(torch.ones(1, 4))
