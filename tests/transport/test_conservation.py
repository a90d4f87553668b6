"""Mass is neither made nor lost."""

from __future__ import annotations

import pytest
import torch

from sumpool.transport import Exact, Hard, Iterative, Solver, partial_transport
from transport.checker import assert_result
from transport.generators import random_cost

SETTINGS = [(mu, eps) for mu in (0.01, 0.5, 0.999) for eps in (0.1, 5.0, 100.0)]
EXACT: list[Solver] = [Exact(), Hard()]


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
@pytest.mark.parametrize("solver", EXACT, ids=str)
def test_mass_and_marginals_are_conserved(solver: Solver, mu: float, eps: float) -> None:
    assert_result(partial_transport(random_cost(3, 49, 8), mu, eps, solver=solver), 1e-12)


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
@pytest.mark.parametrize("solver", EXACT, ids=str)
def test_mass_and_marginals_are_conserved_in_float32(solver: Solver, mu: float, eps: float) -> None:
    cost = random_cost(3, 49, 8, dtype=torch.float32)
    assert_result(partial_transport(cost, mu, eps, solver=solver), 1e-5)


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
@pytest.mark.parametrize("unroll", [False, True])
def test_iterations_conserve_the_transported_mass(unroll: bool, mu: float, eps: float) -> None:
    # The last half step scales the plan to μ; the marginals are met in the limit only.
    solver = Iterative(steps=3, unroll=unroll)
    result = partial_transport(random_cost(3, 49, 8), mu, eps, solver=solver)
    assert_result(result, 1e-12, promises=["mass"])


def test_weights_are_what_the_residual_leaves() -> None:
    for solver in ("exact", "iterative", "hard"):
        result = partial_transport(random_cost(3, 49, 8), 0.3, 5.0, solver=solver)
        left = (1 / 49 - result.residual) / 0.3
        torch.testing.assert_close(result.weights, left, rtol=1e-12, atol=1e-14)


def test_any_number_of_batch_dimensions_is_solved() -> None:
    cost = random_cost(2, 3, 4, 10, 5)
    result = partial_transport(cost, 0.4, 5.0)
    assert_result(result, 1e-12)
    alone = partial_transport(cost[1, 2, 3], 0.4, 5.0)
    torch.testing.assert_close(result.weights[1, 2, 3], alone.weights, rtol=1e-12, atol=0)
    torch.testing.assert_close(result.attributes[1, 2, 3], alone.attributes, rtol=1e-12, atol=0)


def test_an_empty_batch_gives_an_empty_result() -> None:
    for solver in ("exact", "iterative", "hard"):
        result = partial_transport(torch.empty(0, 5, 3), 0.4, 5.0, solver=solver)
        assert result.weights.shape == (0, 5)
        assert result.attributes.shape == (0, 3)
        assert result.plan().shape == (0, 5, 3)
