"""Half precision and autocast: problems are solved in float32 all the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.transport import partial_transport, prototype_costs, sum_pool
from transport.checker import assert_result
from transport.generators import random_cost, random_features

HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("solver", ["exact", "iterative", "hard"])
@pytest.mark.parametrize("half", HALVES)
def test_half_precision_costs_are_solved_in_float32(half: torch.dtype, solver: str) -> None:
    cost = random_cost(2, 49, 8, dtype=torch.float32).to(half)
    got = partial_transport(cost, 0.3, 5.0, solver=solver)
    expected = partial_transport(cost.float(), 0.3, 5.0, solver=solver)
    assert_result(got, 1e-5, promises=["mass"])
    for name in ("weights", "residual", "transported", "attributes"):
        assert getattr(got, name).dtype == torch.float32
        assert torch.equal(getattr(got, name), getattr(expected, name)), name
    assert torch.equal(got.plan(), expected.plan())


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_features_are_pooled_in_float32(half: torch.dtype) -> None:
    features, prototypes = random_features(2, n=49, m=8, d=16, dtype=torch.float32)
    features, prototypes = features.to(half), prototypes.to(half)
    got = sum_pool(features, prototypes, 0.3, 5.0)
    expected = sum_pool(features.float(), prototypes.float(), 0.3, 5.0)
    assert got.embedding.dtype == half
    assert torch.equal(got.embedding, expected.embedding.to(half))
    assert torch.equal(got.weights, expected.weights)
    assert torch.equal(got.attributes, expected.attributes)


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_gradients_are_those_of_float32(half: torch.dtype) -> None:
    features, prototypes = random_features(2, n=49, m=8, d=16, dtype=torch.float32)

    def gradients(features: Tensor, prototypes: Tensor) -> tuple[Tensor, ...]:
        inputs = features.requires_grad_(), prototypes.requires_grad_()
        out = sum_pool(*inputs, 0.3, 5.0)
        return torch.autograd.grad(out.weights.square().sum() + out.attributes[0, 0], inputs)

    low = features.to(half), prototypes.to(half)
    expected = gradients(*(it.float() for it in low))
    for got, want in zip(gradients(*low), expected, strict=True):
        assert got.dtype == half
        assert torch.equal(got, want.to(half))


@pytest.mark.parametrize("half", HALVES)
def test_autocast_changes_no_number(half: torch.dtype) -> None:
    features, prototypes = random_features(2, n=49, m=8, d=16, dtype=torch.float32)
    expected = sum_pool(features, prototypes, 0.3, 5.0)
    with torch.autocast("cpu", dtype=half):
        got = sum_pool(features, prototypes, 0.3, 5.0)
    for name, value in got._asdict().items():
        assert value.dtype == torch.float32, name
        assert torch.equal(value, getattr(expected, name)), name


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("solver", ["exact", "iterative", "hard"])
def test_a_result_read_under_autocast_is_in_float32(half: torch.dtype, solver: str) -> None:
    cost = random_cost(2, 49, 8, dtype=torch.float32)
    plain = partial_transport(cost, 0.3, 5.0, solver=solver)
    expected = plain.weights, plain.attributes, plain.plan()
    with torch.autocast("cpu", dtype=half):
        result = partial_transport(cost, 0.3, 5.0, solver=solver)
        got = result.weights, result.attributes, result.plan()
    for value, want in zip(got, expected, strict=True):
        assert value.dtype == torch.float32
        assert torch.equal(value, want)


def test_autocast_changes_no_gradient() -> None:
    features, prototypes = random_features(2, n=49, m=8, d=16, dtype=torch.float32)
    inputs = features.requires_grad_(), prototypes.requires_grad_()

    def loss() -> Tensor:
        out = sum_pool(*inputs, 0.3, 5.0)
        return out.embedding.square().sum() + out.weights.square().sum() + out.attributes[0, 0]

    expected = torch.autograd.grad(loss(), inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = loss()
    for got, want in zip(torch.autograd.grad(cast, inputs), expected, strict=True):
        assert torch.equal(got, want)


def test_float64_is_solved_in_float64() -> None:
    features, prototypes = random_features(2, n=49, m=8, d=16)
    assert all(it.dtype == torch.float64 for it in sum_pool(features, prototypes, 0.3, 5.0))
    assert prototype_costs(features.float(), prototypes).dtype == torch.float64
    # Numbers for μ and ε may come in another dtype than the costs.
    mu, eps = torch.tensor(0.3), torch.tensor(5.0)
    result = partial_transport(prototype_costs(features, prototypes), mu, eps)
    assert_result(result, 1e-12)


def test_float32_keeps_small_shares_apart() -> None:
    # 1 − μ is formed before rounding to float32.
    cost = random_cost(49, 8, dtype=torch.float32)
    result = partial_transport(cost, 1 - 1e-6, 5.0)
    kept = float(result.residual.double().sum())
    assert kept == pytest.approx(1e-6, rel=1e-4)
