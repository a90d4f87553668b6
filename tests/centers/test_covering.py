"""Covering radius and its average against loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sumpool.centers import covering_radius, greedy_k_center, mean_covering_radius


def points_of(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def naive_radius(points: Tensor, centers: Tensor) -> float:
    return max(min(float((p - c).norm()) for c in centers) for p in points)


def naive_average(points: Tensor) -> float:
    """One problem: the radius of every number of greedy centers, each from the beginning."""
    radii = [
        naive_radius(points, points[greedy_k_center(points, k)]) for k in range(1, len(points) + 1)
    ]
    return sum(radii) / len(radii)


def test_radius_equals_a_loop() -> None:
    points, centers = points_of(2, 3, 15, 4), points_of(2, 3, 5, 4, seed=1)
    radius = covering_radius(points, centers)
    assert radius.shape == (2, 3)
    for a in range(2):
        for b in range(3):
            expected = naive_radius(points[a, b], centers[a, b])
            assert float(radius[a, b]) == pytest.approx(expected)


def test_points_that_are_centers_have_radius_zero() -> None:
    points = points_of(40, 64).float()
    assert float(covering_radius(points, points)) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    points, centers = (points_of(n, 4).to(dtype) for n in (15, 5))
    radius = covering_radius(points, centers)
    assert radius.dtype == dtype
    assert torch.equal(radius, covering_radius(points.float(), centers.float()).to(dtype))


def test_masked_points_need_no_cover() -> None:
    points, centers = points_of(3, 9, 2), points_of(3, 2, 2, seed=1)
    mask = torch.arange(9) < torch.tensor([[3], [9], [1]])
    radius = covering_radius(points, centers, mask)
    for row, count in enumerate((3, 9, 1)):
        expected = naive_radius(points[row, :count], centers[row])
        assert float(radius[row]) == pytest.approx(expected)


@given(st.integers(1, 9), st.integers(0, 5))
def test_average_radius_equals_a_loop(n: int, seed: int) -> None:
    points = points_of(n, 2, seed=seed)
    assert float(mean_covering_radius(points)) == pytest.approx(naive_average(points))


def test_average_radius_of_unequal_classes_equals_one_by_one() -> None:
    points = points_of(2, 2, 8, 3)
    mask = torch.rand(2, 2, 8, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 5] = True
    average = mean_covering_radius(points, mask)
    assert average.shape == (2, 2)
    for a in range(2):
        for b in range(2):
            expected = naive_average(points[a, b][mask[a, b]])
            assert float(average[a, b]) == pytest.approx(expected)


def test_duplicates_are_covered_by_one() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [3.0, 4.0]])
    assert float(mean_covering_radius(points)) == pytest.approx(5 / 4)


def test_wrong_arguments_are_named() -> None:
    points = points_of(2, 5, 3)
    with pytest.raises(ValueError, match=r"centers must have shape \(2, k, 3\).* got \(2, 4\)"):
        covering_radius(points, points_of(2, 4))
    with pytest.raises(ValueError, match=r"centers must have shape \(2, k, 3\).* got \(2, 0, 3\)"):
        covering_radius(points, points[:, :0])
    with pytest.raises(ValueError, match="mask must be boolean of shape"):
        mean_covering_radius(points, torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"points must have shape .* got \(2, 0, 3\)"):
        mean_covering_radius(points[:, :0])
    with pytest.raises(ValueError, match="mask must leave a point in every problem"):
        mean_covering_radius(points, torch.zeros(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask must leave a point in every problem"):
        covering_radius(points, points, torch.zeros(2, 5, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mean_radii_of_half_precision_are_computed_in_float32(dtype: torch.dtype) -> None:
    points = (1000 * torch.rand(300, 8, generator=torch.Generator().manual_seed(0))).to(dtype)
    radius = mean_covering_radius(points)
    assert radius.dtype == dtype
    assert radius == mean_covering_radius(points.float()).to(dtype)


def test_masked_points_may_hold_anything() -> None:
    points = torch.tensor([[0.0], [1.0], [float("nan")], [4.0]])
    mask = torch.tensor([True, True, False, True])
    assert greedy_k_center(points, 3, mask=mask).tolist() == [0, 3, 1]
    assert greedy_k_center(points, 2, torch.zeros(1, 1), mask).tolist() == [3, 1]
    assert mean_covering_radius(points, mask) == mean_covering_radius(points[mask])
    center = torch.ones(1, 1, requires_grad=True)
    radius = covering_radius(points, center, mask)
    radius.backward()
    assert (radius.item(), center.grad) == (3, -torch.ones(1, 1))
