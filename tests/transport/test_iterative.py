"""The papers' iteration: where it leads, and how far it gets in 100 steps."""

from __future__ import annotations

import pytest
import torch

from sumpool.transport import Iterative, partial_transport
from transport.checker import assert_result
from transport.generators import features_on_prototypes, random_cost
from transport.oracles import iterate

#: ε, μ and how far Σp is off after 100 iterations (n = 49, m = 64). At μ = .2, which wants 9.8 of
#: the 49 features, it is slow where 8 lie on prototypes: the other 1.8 wait for t to grow by e^ε.
MEASURED = [(5.0, 0.95, 3e-4), (20.0, 0.2, 2.7e-2), (50.0, 0.2, 1.8e-1)]


@pytest.mark.parametrize("steps", [1, 2, 100])
def test_iterations_are_those_of_the_proposition(steps: int) -> None:
    cost = random_cost(2, 49, 8)
    residual, t = iterate(cost, 0.3, 5.0, steps)
    plan = t.unsqueeze(-1) * (-5.0 * cost).exp() * residual.unsqueeze(-1)
    for unroll in (False, True):
        result = partial_transport(cost, 0.3, 5.0, solver=Iterative(steps, unroll=unroll))
        torch.testing.assert_close(result.residual, residual, rtol=1e-12, atol=0)
        torch.testing.assert_close(result.plan(), plan, rtol=1e-11, atol=0)


@pytest.mark.parametrize(("eps", "mu"), [(0.5, 0.3), (5.0, 0.7)])
def test_exact_equals_a_thousand_iterations(eps: float, mu: float) -> None:
    cost = random_cost(2, 49, 64)
    residual, _ = iterate(cost, mu, eps, 1000)
    exact = partial_transport(cost, mu, eps)
    torch.testing.assert_close(exact.residual, residual, rtol=0, atol=1e-12)
    iterated = partial_transport(cost, mu, eps, solver=Iterative(1000))
    assert_result(iterated, 1e-9, weights=exact.weights, attributes=exact.attributes)


@pytest.mark.parametrize(("eps", "mu", "off"), MEASURED)
def test_a_hundred_iterations_are_off_as_measured(eps: float, mu: float, off: float) -> None:
    cost = features_on_prototypes(8, 49, 64, d=128, near=8)
    result = partial_transport(cost, mu, eps, solver="iterative")
    missing = (result.weights.sum(-1) - 1).abs()
    assert off / 2 < float(missing.mean()) < off * 2
    torch.testing.assert_close(result.errors().weights, missing)
    assert_result(result, 1e-12, promises=["mass"])


@pytest.mark.parametrize(("eps", "mu", "off"), MEASURED)
def test_exact_is_off_by_rounding_where_iterations_are_not(
    eps: float, mu: float, off: float
) -> None:
    cost = features_on_prototypes(8, 49, 64, d=128, near=8)
    assert_result(partial_transport(cost, mu, eps), 4e-15)


@pytest.mark.parametrize("eps", [1e-3, 1.0, 1000.0])
@pytest.mark.parametrize("mu", [1e-3, 0.999])
def test_iterations_stay_finite_in_float32(mu: float, eps: float) -> None:
    cost = random_cost(2, 49, 8, dtype=torch.float32).requires_grad_()
    for unroll in (False, True):
        result = partial_transport(cost, mu, eps, solver=Iterative(unroll=unroll))
        assert_result(result, 1e-5, promises=["mass"])
        (grad,) = torch.autograd.grad(result.attributes[..., 0].sum(), cost)
        assert grad.isfinite().all()
