"""Histogram operator, combination of prototypes and their bound, against loops and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor

from sumpool.pooling import (
    GlobalAveragePool2d,
    average_pooling_error,
    histogram,
    prototype_combination,
)
from sumpool.transport import greedy_k_center, lipschitz_normalize
from transport.generators import random_features, random_mask, source


def naive(features: Tensor, prototypes: Tensor, valid: list[bool]) -> dict[str, Tensor]:
    """One image by loops: features (n, d), prototypes (m, d)."""
    p, distances = [0.0] * len(prototypes), []
    used = [f for f, keep in zip(features, valid, strict=True) if keep]
    for f in used:
        away = [float((f - v).norm()) for v in prototypes]
        p[away.index(min(away))] += 1 / len(used)
        distances.append(min(away))
    combination = sum(
        (share * v for share, v in zip(p, prototypes, strict=True)), start=0 * prototypes[0]
    )
    mean = sum(used, start=0 * used[0]) / len(used)
    return {
        "histogram": torch.tensor(p, dtype=torch.float64),
        "combination": combination,
        "error": (combination - mean).norm(),
        "distance": torch.tensor(sum(distances) / len(distances), dtype=torch.float64),
        "radius": torch.tensor(max(distances), dtype=torch.float64),
    }


@pytest.mark.parametrize("masked", [False, True])
def test_a_batch_equals_a_loop_over_its_images(masked: bool) -> None:
    features, prototypes = random_features(2, 3, n=9, m=5, d=4)
    mask = random_mask(2, 3, 9) if masked else None
    found = average_pooling_error(features, prototypes, mask)
    combination = prototype_combination(features, prototypes, mask)
    assert torch.equal(histogram(features, prototypes, mask), found.histogram)
    for place in np.ndindex(2, 3):
        valid = [True] * 9 if mask is None else mask[place].tolist()
        wanted = naive(features[place], prototypes, valid)
        torch.testing.assert_close(combination[place], wanted["combination"])
        for name in ("histogram", "error", "distance", "radius"):
            torch.testing.assert_close(getattr(found, name)[place], wanted[name])


def test_the_histogram_solves_its_transport_problem() -> None:
    """Definition 4.2.1 as a linear program over plans (m, n)."""
    features, prototypes = random_features(n=7, m=4, d=3, seed=2)
    cost = torch.cdist(prototypes, features).numpy()
    marginals = np.kron(np.ones((1, 4)), np.eye(7))  # Σ_i π_ij = 1/n
    solved = linprog(cost.ravel(), A_eq=marginals, b_eq=np.full(7, 1 / 7))
    found = average_pooling_error(features, prototypes)
    assert float(found.distance) == pytest.approx(solved.fun)
    np.testing.assert_allclose(found.histogram, solved.x.reshape(4, 7).sum(1), atol=1e-9)


def test_a_histogram_is_a_distribution_and_its_combination_lies_among_prototypes() -> None:
    features, prototypes = random_features(50, n=20, m=6, d=1)
    p = histogram(features, prototypes)
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(-1), torch.ones(50, dtype=torch.float64))
    used = torch.where(p > 0, prototypes[:, 0], torch.nan)
    low, high = (torch.from_numpy(bound(used.numpy(), axis=-1)) for bound in (np.nanmin, np.nanmax))
    combination = prototype_combination(features, prototypes)[:, 0]
    assert ((combination >= low - 1e-12) & (combination <= high + 1e-12)).all()


numbers = st.floats(-10, 10, allow_nan=False, width=32)


@given(
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 10**6),
    numbers,
    numbers,
)
def test_the_error_is_at_most_the_mean_distance_and_that_at_most_the_radius(
    n: int, m: int, d: int, seed: int, spread: float, shift: float
) -> None:
    """The sharp bound, wherever features and prototypes are."""
    draw = source(seed)
    features = spread * torch.randn(3, n, d, generator=draw, dtype=torch.float64) + shift
    prototypes = torch.randn(m, d, generator=draw, dtype=torch.float64)
    found = average_pooling_error(features, prototypes)
    rounding = 1e-12 * (1 + found.radius)
    assert (found.error <= found.distance + rounding).all()
    assert (found.distance <= found.radius + rounding).all()


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 10**6))
def test_the_squared_error_is_at_most_the_radius_where_that_is_at_most_one(
    n: int, d: int, seed: int
) -> None:
    """Proposition 4.2.1 as printed, for features in the unit ball, with δ ≤ 1."""
    draw = source(seed)
    features = lipschitz_normalize(torch.randn(4, n, d, generator=draw, dtype=torch.float64))
    points = features.flatten(0, 1)
    for count in range(1, min(6, len(points)) + 1):
        prototypes = points[greedy_k_center(points, count)]
        found = average_pooling_error(features, prototypes)
        delta = float(found.radius.max())
        if delta <= 1:
            assert (found.error.square() <= delta + 1e-12).all()
        assert (found.error.square() <= delta**2 + 1e-12).all()


def test_the_squared_error_exceeds_a_radius_above_one() -> None:
    """Proposition 4.2.1 as printed is false for δ > 1, and the sharp bound is reached."""
    prototypes = torch.tensor([[1.0, 0.0]])
    found = average_pooling_error(torch.tensor([[-1.0, 0.0]] * 5), prototypes)
    assert float(found.radius) == 2.0
    assert float(found.error) == 2.0
    assert float(found.error) ** 2 > float(found.radius)


def test_the_printed_bound_fails_for_prototypes_picked_among_the_features_too() -> None:
    features = torch.tensor([[1.0, 0.0], *[[-1.0, 0.0]] * 9])
    prototypes = features[greedy_k_center(features, 1)]
    found = average_pooling_error(features, prototypes)
    assert float(found.radius) == 2.0
    assert float(found.error) == pytest.approx(1.8)
    assert float(found.error) ** 2 > float(found.radius)


def test_with_every_feature_a_prototype_average_pooling_is_the_combination() -> None:
    maps = torch.randn(1, 3, 4, 4, dtype=torch.float64)
    features = maps.flatten(2).mT[0]
    pooled = GlobalAveragePool2d()(maps)[0]
    torch.testing.assert_close(prototype_combination(features, features), pooled)
    found = average_pooling_error(features, features)
    assert float(found.error) == float(found.radius) == 0.0
    assert (found.histogram == 1 / 16).all()


def test_more_centers_lower_the_radius_but_need_not_lower_the_error() -> None:
    features = torch.tensor([[-1.0], [0.0], [1.0]])
    one = average_pooling_error(features, features[1:2])
    two = average_pooling_error(features, features[1:])
    assert float(one.error) == 0.0  # differences cancel
    assert float(two.error) > 0.0
    assert float(two.distance) < float(one.distance)


def test_equal_weights_are_average_pooling_and_others_keep_the_bound() -> None:
    features, prototypes = random_features(6, n=8, m=3, d=2, seed=4)
    equal = average_pooling_error(features, prototypes, weights=torch.full((8,), 1 / 8))
    for one, other in zip(equal, average_pooling_error(features, prototypes), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    weights = torch.rand(6, 8, generator=source(1), dtype=torch.float64)
    weights[:, 3] = 0
    weights /= weights.sum(-1, keepdim=True)
    found = average_pooling_error(features, prototypes, weights=weights)
    pooled = (weights.unsqueeze(-1) * features).sum(1)
    combined = prototype_combination(features, prototypes, weights=weights)
    torch.testing.assert_close(found.error, (pooled - combined).norm(dim=-1))
    assert (found.error <= found.distance).all()
    assert (found.distance <= found.radius).all()
    # A feature without mass does not count, not even for the radius.
    features[:, 3] = 100
    for one, other in zip(
        found, average_pooling_error(features, prototypes, weights=weights), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_whatever_stands_behind_a_mask_has_no_effect() -> None:
    features, prototypes = random_features(4, n=8, m=3, d=2)
    mask = random_mask(4, 8)
    spoiled = features.masked_fill(~mask.unsqueeze(-1), math.nan)
    for one, other in zip(
        average_pooling_error(features, prototypes, mask),
        average_pooling_error(spoiled, prototypes, mask),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_of_prototypes_at_the_same_distance_the_first_one_counts() -> None:
    prototypes = torch.tensor([[1.0], [-1.0], [1.0]])
    assert histogram(torch.tensor([[0.0], [1.0]]), prototypes).tolist() == [1.0, 0.0, 0.0]


def test_many_features_far_from_the_origin_find_their_nearest_prototype() -> None:
    """Distances by a matrix product would round to noise here."""
    prototypes = 1000 + torch.arange(40.0).unsqueeze(-1) / 100
    features = prototypes.repeat(3, 1) + 0.001
    torch.testing.assert_close(histogram(features, prototypes), torch.full((40,), 3 / 120))


def test_half_precision_is_solved_in_float32() -> None:
    features, prototypes = random_features(2, n=6, m=3, d=2, dtype=torch.float32)
    assert histogram(features.half(), prototypes.half()).dtype == torch.float32
    assert histogram(features, prototypes.double()).dtype == torch.float64


def test_prototypes_receive_their_share_as_gradient() -> None:
    features, prototypes = random_features(n=10, m=3, d=2)
    prototypes.requires_grad_(True)
    prototype_combination(features, prototypes).sum().backward()
    assert prototypes.grad is not None
    torch.testing.assert_close(prototypes.grad[:, 0], histogram(features, prototypes.detach()))


def test_arguments_that_do_not_fit_are_refused() -> None:
    features, prototypes = torch.zeros(2, 5, 3), torch.zeros(4, 3)
    with pytest.raises(ValueError, match="must have the 3 channels of the prototypes, got 2"):
        histogram(torch.zeros(5, 2), prototypes)
    with pytest.raises(ValueError, match=r"mask must broadcast to shape \(2, 5\)"):
        histogram(features, prototypes, torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"at least one valid feature per image, image \[1\]"):
        histogram(features, prototypes, torch.tensor([[True] * 5, [False] * 5]))
    with pytest.raises(ValueError, match="weights and mask exclude each other"):
        histogram(features, prototypes, torch.ones(5, dtype=torch.bool), weights=torch.ones(5))
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.int64"):
        histogram(features, prototypes, weights=torch.ones(5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"weights must broadcast to shape \(2, 5\), got \(4,\)"):
        histogram(features, prototypes, weights=torch.ones(4))
    with pytest.raises(ValueError, match=r"weights must be at least 0, got -1\.0"):
        histogram(features, prototypes, weights=-torch.ones(5))
