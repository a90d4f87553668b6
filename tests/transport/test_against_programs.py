"""P1 and P2 against general-purpose optimizers."""

from __future__ import annotations

import pytest
import torch

from sumpool.transport import partial_transport
from transport.checker import assert_result
from transport.generators import random_cost
from transport.oracles import bisected_weights, convex_program, linear_program

SIZES = [(1, 1), (6, 1), (15, 6)]


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_hard_equals_the_linear_program(n: int, m: int, mu: float) -> None:
    cost = random_cost(n, m, seed=n)
    plan, residual = linear_program(cost, mu)
    result = partial_transport(cost, mu, 1.0, solver="hard")
    assert_result(result, 1e-6, weights=(1 / n - residual) / mu, attributes=plan.sum(0) / mu)
    torch.testing.assert_close(result.plan(), plan, rtol=0, atol=1e-6)
    torch.testing.assert_close(result.residual, residual, rtol=0, atol=1e-6)


@pytest.mark.process  # importing CVXPY takes seconds
@pytest.mark.parametrize(("mu", "eps"), [(0.3, 5.0), (0.7, 1.0), (0.05, 2.0), (0.9, 10.0)])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_exact_equals_the_convex_program(n: int, m: int, mu: float, eps: float) -> None:
    cost = random_cost(n, m, seed=n)
    plan, residual = convex_program(cost, mu, eps)
    result = partial_transport(cost, mu, eps)
    assert_result(result, 1e-6, weights=(1 / n - residual) / mu, attributes=plan.sum(0) / mu)
    torch.testing.assert_close(result.plan(), plan, rtol=0, atol=1e-6)
    torch.testing.assert_close(result.residual, residual, rtol=0, atol=1e-6)


@pytest.mark.parametrize("eps", [0.1, 5.0, 1000.0])
@pytest.mark.parametrize("mu", [0.01, 0.5, 0.99])
def test_exact_equals_bisection(mu: float, eps: float) -> None:
    cost = random_cost(49, 64, seed=5)
    assert_result(partial_transport(cost, mu, eps), 1e-11, weights=bisected_weights(cost, mu, eps))
