"""Greedy k-center against a naive loop."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sumpool.transport import greedy_k_center
from transport.generators import random_mask, source


def naive_k_center(
    points: Tensor, k: int, chosen: Tensor | None = None, mask: Tensor | None = None
) -> list[int]:
    """One problem: take the farthest candidate from all centers, again and again."""
    rest = [j for j in range(len(points)) if mask is None or mask[j]]
    centers = [] if chosen is None else list(chosen)
    picks: list[int] = []
    for _ in range(k):
        far = [min((float((points[j] - c).norm()) for c in centers), default=1e9) for j in rest]
        pick = rest.pop(far.index(max(far)))
        picks.append(pick)
        centers.append(points[pick])
    return picks


def points_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=source(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 1), (5, 5), (30, 12)])
def test_picks_equal_a_naive_loop(n: int, k: int) -> None:
    points = points_of(n, 3)
    assert greedy_k_center(points, k).tolist() == naive_k_center(points, k)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_points_in_half_precision_are_compared_in_single(dtype: torch.dtype) -> None:
    points, chosen = points_of(30, 3).to(dtype), points_of(4, 3, seed=1).to(dtype)
    picks = greedy_k_center(points, 5, chosen=chosen)
    assert torch.equal(picks, greedy_k_center(points.float(), 5, chosen=chosen.float()))


def test_picks_keep_away_from_what_is_chosen() -> None:
    points, chosen = points_of(30, 3), points_of(4, 3, seed=1)
    expected = naive_k_center(points, 10, chosen)
    assert greedy_k_center(points, 10, chosen).tolist() == expected
    assert expected[0] != 0
    assert greedy_k_center(points, 10, chosen[:0]).tolist() == naive_k_center(points, 10)


def test_masked_points_are_never_picked() -> None:
    points, mask = points_of(40, 3), random_mask(40)
    mask[0] = False
    k = int(mask.sum())
    picks = greedy_k_center(points, k, mask=mask)
    assert picks.tolist() == naive_k_center(points, k, mask=mask)
    assert mask[picks].all()


def test_a_batch_is_picked_as_one_by_one() -> None:
    points, chosen, mask = points_of(2, 3, 20, 4), points_of(2, 3, 2, 4, seed=1), None
    mask = random_mask(2, 3, 20)
    k = int(mask.sum(-1).min())
    picks = greedy_k_center(points, k, chosen, mask)
    assert picks.shape == (2, 3, k)
    assert picks.dtype == torch.int64
    for a in range(2):
        for b in range(3):
            expected = naive_k_center(points[a, b], k, chosen[a, b], mask[a, b])
            assert picks[a, b].tolist() == expected


def test_duplicates_are_picked_at_most_once_each() -> None:
    points = points_of(3, 2).repeat(4, 1)
    picks = greedy_k_center(points, 12)
    assert sorted(picks.tolist()) == list(range(12))
    assert {it % 3 for it in picks[:3].tolist()} == {0, 1, 2}


@given(st.integers(2, 9), st.data())
def test_covering_radius_is_at_most_twice_the_optimum(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n - 1))
    grid = st.lists(st.tuples(*[st.integers(-5, 5)] * 2), min_size=n, max_size=n)
    points = torch.tensor(data.draw(grid), dtype=torch.float64)
    apart = torch.cdist(points, points)

    def radius(centers: list[int]) -> float:
        return float(apart[:, centers].amin(-1).max())

    best = min(radius(list(it)) for it in combinations(range(n), k))
    assert radius(greedy_k_center(points, k).tolist()) <= 2 * best + 1e-9


@given(st.integers(1, 8), st.integers(0, 3), st.data())
def test_any_batch_with_chosen_and_mask_equals_a_naive_loop(
    n: int, given_: int, data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 100))
    points, chosen = points_of(3, n, 2, seed=seed), points_of(3, given_, 2, seed=seed + 1)
    mask = random_mask(3, n, seed=seed)
    k = data.draw(st.integers(1, int(mask.sum(-1).min())))
    picks = greedy_k_center(points, k, chosen, mask)
    for row in range(3):
        expected = naive_k_center(points[row], k, chosen[row], mask[row])
        assert picks[row].tolist() == expected


def test_a_chosen_point_is_picked_last_in_float32_too() -> None:
    points = points_of(60, 128).float()
    picks = greedy_k_center(points, 60, chosen=points[:40])
    assert sorted(picks[:20].tolist()) == list(range(40, 60))
    # Points at distance 0 are equals, whatever the number of chosen ones: the first comes first.
    assert picks[20:].tolist() == list(range(40))
