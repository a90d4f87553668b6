"""Optimal-transport pooling: Sinkhorn's plan, its marginals and its gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling.rivals.optimal_transport import (
    OptimalTransportPool1d,
    OptimalTransportPool2d,
    uniform_transport,
)
from sumpool.transport import lipschitz_normalize
from transport.generators import random_cost, random_mask


def otp1d(**options: Any) -> OptimalTransportPool1d:
    options = {"init": "random", "eps": 4.0, "dtype": torch.float64, **options}
    return OptimalTransportPool1d(CHANNELS, 12, 4, **options)


def looped_plan(cost: Tensor, eps: float, iterations: int) -> Tensor:
    """Sinkhorn's scalings of exp(−ε c), entry by entry."""
    n, m = cost.shape
    kernel = [[math.exp(-eps * float(cost[j, i])) for i in range(m)] for j in range(n)]
    u, v = [1.0] * n, [1.0] * m
    for _ in range(iterations):
        u = [1 / n / sum(kernel[j][i] * v[i] for i in range(m)) for j in range(n)]
        v = [1 / m / sum(kernel[j][i] * u[j] for j in range(n)) for i in range(m)]
    u = [1 / n / sum(kernel[j][i] * v[i] for i in range(m)) for j in range(n)]
    rows = [[u[j] * kernel[j][i] * v[i] for i in range(m)] for j in range(n)]
    return torch.tensor(rows, dtype=torch.float64)


def looped_pool(layer: OptimalTransportPool1d, x: Tensor) -> Tensor:
    """The embedding of one sequence (n, C), by the definition."""
    local = [layer.map.weight.detach() @ f for f in x]
    centers = lipschitz_normalize(layer.prototypes.detach())
    cost = torch.stack([(lipschitz_normalize(f) - centers).norm(dim=-1) for f in local])
    plan = looped_plan(cost, layer.eps, layer.iterations)
    m = plan.shape[1]
    parts = [sum(plan[j, i] * f for j, f in enumerate(local)) for i in range(m)]
    return math.sqrt(m) * torch.cat(parts)


@pytest.mark.parametrize("eps", [0.5, 5.0])
def test_the_plan_equals_sinkhorns_loops(eps: float) -> None:
    cost = random_cost(2, 7, 4)
    expected = torch.stack([looped_plan(it, eps, 20) for it in cost])
    got = uniform_transport(cost, eps, iterations=20)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.process  # importing POT takes seconds
@pytest.mark.parametrize("eps", [1.0, 10.0])
def test_the_plan_equals_that_of_pot(eps: float) -> None:
    ot = pytest.importorskip("ot")
    for cost in random_cost(3, 12, 5):
        n, m = cost.shape
        uniform = [torch.full((k,), 1 / k, dtype=torch.float64).numpy() for k in (n, m)]
        expected = ot.sinkhorn(*uniform, cost.numpy(), reg=1 / eps, stopThr=1e-12, numItermax=10000)
        got = uniform_transport(cost, eps, iterations=1000)
        torch.testing.assert_close(got, torch.from_numpy(expected), rtol=0, atol=1e-9)


def test_the_embedding_equals_the_definition() -> None:
    layer, x = otp1d(iterations=20), tokens(dtype=torch.float64)
    expected = torch.stack([looped_pool(layer, it) for it in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
def test_both_marginals_are_uniform(masked: bool) -> None:
    mask = random_mask(3, 20) if masked else torch.ones(3, 20, dtype=torch.bool)
    plan = uniform_transport(random_cost(3, 20, 6), 5.0, mask=mask if masked else None)
    torch.testing.assert_close(plan.sum(-1), (mask / mask.sum(-1, keepdim=True)).double())
    torch.testing.assert_close(plan.sum(-2), torch.full((3, 6), 1 / 6, dtype=torch.float64))


def test_sharp_problems_keep_to_the_features_marginal_in_float32() -> None:
    plan = uniform_transport(random_cost(3, 20, 6, dtype=torch.float32), 1e4)
    assert plan.isfinite().all()
    torch.testing.assert_close(plan.sum(-1), torch.full((3, 20), 1 / 20))


def test_the_vectors_add_up_to_average_pooling() -> None:
    layer, x = otp1d(), tokens(dtype=torch.float64)
    total = layer(x).unflatten(-1, (4, 3)).sum(1)
    torch.testing.assert_close(total, math.sqrt(4) * layer.map(x).mean(1))


def test_small_eps_repeats_the_average() -> None:
    layer, x = otp1d(eps=1e-9), tokens(dtype=torch.float64)
    expected = (layer.map(x).mean(1) / math.sqrt(4)).repeat(1, 4)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.process
@pytest.mark.parametrize("iterations", [1, 50])
def test_gradients_are_those_of_what_is_returned(iterations: int) -> None:
    cost, mask = random_cost(2, 5, 3).requires_grad_(), random_mask(2, 5)
    torch.autograd.gradcheck(lambda it: uniform_transport(it, 5.0, iterations, mask), cost)


def test_gradients_of_many_iterations_are_those_of_the_fixed_point() -> None:
    # Implicitly: ψ solves T(ψ, c) = ψ, so that dψ = (I − ∂T/∂ψ)⁺ ∂T.
    cost, direction = random_cost(9, 4).requires_grad_(), random_cost(9, 4, seed=1)
    plan = uniform_transport(cost, 5.0, iterations=500)
    (got,) = torch.autograd.grad((plan * direction).sum(), cost)

    def one_round(cost: Tensor, psi: Tensor) -> Tensor:
        phi = -math.log(9) - (psi - 5 * cost).logsumexp(-1)
        return -math.log(4) - (phi.unsqueeze(-1) - 5 * cost).logsumexp(-2)

    def value(cost: Tensor, psi: Tensor) -> Tensor:
        return ((psi - 5 * cost).softmax(-1) / 9 * direction).sum()

    psi = torch.zeros(4, dtype=torch.float64)
    for _ in range(500):
        psi = one_round(cost.detach(), psi)
    jacobian = torch.autograd.functional.jacobian
    slope = torch.eye(4, dtype=torch.float64) - jacobian(lambda it: one_round(cost, it), psi)
    of_cost, of_psi = jacobian(value, (cost, psi))
    along = of_psi @ torch.linalg.pinv(slope)
    expected = of_cost + torch.tensordot(along, jacobian(lambda it: one_round(it, psi), cost), 1)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_weights_are_uniform_and_the_plan_sums_to_them() -> None:
    layer = OptimalTransportPool2d(CHANNELS, 12, 4, init="random")
    out, plan = layer.pool(maps()), layer.plan(maps())
    assert plan.shape == (3, 4, 5, 6)
    torch.testing.assert_close(out.weights, torch.full((3, 5, 6), 1 / 30))
    torch.testing.assert_close(plan.sum(1), out.weights)
    torch.testing.assert_close(plan.sum((2, 3)), torch.full((3, 4), 1 / 4), rtol=0, atol=1e-4)


def test_prototypes_are_set_from_the_mapped_features() -> None:
    layer = OptimalTransportPool2d(CHANNELS, 12, 4)
    assert not layer.prototypes_ready
    layer(maps())
    assert layer.prototypes_ready
    local = lipschitz_normalize(layer.map(maps().flatten(2).mT)).flatten(0, 1)
    near = torch.cdist(layer.prototypes, local).amin(-1)
    torch.testing.assert_close(near, torch.zeros(4), rtol=0, atol=1e-3)
    before = layer.prototypes.clone()
    layer(maps(seed=1))
    assert torch.equal(layer.prototypes, before)


def test_autocast_solves_in_float32() -> None:
    layer = OptimalTransportPool2d(CHANNELS, 12, 4, init="random")
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(maps())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, layer(maps()), rtol=0.02, atol=0.02)
