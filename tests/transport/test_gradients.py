"""First derivatives: closed form, unrolled iterations and finite differences agree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.transport import Exact, Iterative, TransportResult, partial_transport, sum_pool
from transport.generators import random_cost, random_features, random_mask
from transport.oracles import closed_form_gradient

SETTINGS = [(0.3, 5.0), (0.9, 1.0), (0.5, 20.0)]
READINGS = ["weights", "attributes", "residual"]


def functional(value: Tensor, seed: int = 7) -> Tensor:
    """A fixed random linear functional of ``value``."""
    return (value * random_cost(*value.shape, seed=seed, dtype=value.dtype)).sum()


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
def test_gradient_of_the_plan_is_the_closed_form(mu: float, eps: float) -> None:
    cost = random_cost(12, 5).requires_grad_()
    to_plan, to_residual = random_cost(12, 5, seed=1), random_cost(12, seed=2)
    result = partial_transport(cost, mu, eps)
    loss = (result.plan() * to_plan).sum() + (result.residual * to_residual).sum()
    (grad,) = torch.autograd.grad(loss, cost)
    expected = closed_form_gradient(
        result.plan().detach(), result.residual.detach(), to_plan, to_residual, mu, eps
    )
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
@pytest.mark.parametrize("reading", READINGS)
def test_gradient_of_each_output_is_the_closed_form(reading: str, mu: float, eps: float) -> None:
    cost = random_cost(12, 5).requires_grad_()
    result = partial_transport(cost, mu, eps)
    value = getattr(result, reading)
    to_value = random_cost(*value.shape, seed=1)
    (grad,) = torch.autograd.grad((value * to_value).sum(), cost)
    to_plan, to_residual = torch.zeros(12, 5).double(), torch.zeros(12).double()
    if reading == "weights":  # p = (1/n − ρ)/μ
        to_residual = -to_value / mu
    elif reading == "attributes":  # z_i = Σ_j π_ji/μ
        to_plan = (to_value / mu).expand(12, 5)
    else:
        to_residual = to_value
    expected = closed_form_gradient(
        result.plan().detach(), result.residual.detach(), to_plan, to_residual, mu, eps
    )
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
@pytest.mark.parametrize("reading", READINGS)
def test_gradient_is_that_of_unrolled_iterations(reading: str, mu: float, eps: float) -> None:
    def gradients(solver: Exact | Iterative) -> tuple[Tensor, ...]:
        inputs = random_cost(2, 12, 5).requires_grad_(), scalar(mu), scalar(eps)
        result = partial_transport(*inputs, solver=solver)
        return torch.autograd.grad(functional(getattr(result, reading)), inputs)

    unrolled = gradients(Iterative(steps=300, unroll=True))
    for solver in (Exact(), Iterative(steps=300)):
        for grad, expected in zip(gradients(solver), unrolled, strict=True):
            torch.testing.assert_close(grad, expected, rtol=1e-7, atol=1e-11)


@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_to_cost_mu_and_eps_are_finite_differences(
    masked: bool, mu: float, eps: float
) -> None:
    mask = random_mask(2, 6) if masked else None

    def solve(cost: Tensor, mu: Tensor, eps: Tensor) -> tuple[Tensor, ...]:
        result = partial_transport(cost, mu, eps, mask=mask)
        return result.weights, result.attributes, result.residual, result.plan()

    inputs = random_cost(2, 6, 3).requires_grad_(), scalar(mu), scalar(eps)
    assert torch.autograd.gradcheck(solve, inputs, fast_mode=True)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("mu", "eps"), SETTINGS)
def test_gradients_to_features_and_prototypes_are_finite_differences(
    mu: float, eps: float, background: bool
) -> None:
    features, prototypes = random_features(2, n=6, m=3, d=4)

    def pool(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(sum_pool(*inputs, background=background))

    inputs = features.requires_grad_(), prototypes.requires_grad_(), scalar(mu), scalar(eps)
    assert torch.autograd.gradcheck(pool, inputs, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_to_mu_is_right_at_average_pooling(dtype: torch.dtype) -> None:
    # As μ → 1, what stays is n(1 − μ) softmax(−ℓ), so ∂p/∂μ = softmax(−ℓ) − 1/n.
    cost, mu = random_cost(12, 5, dtype=dtype), torch.ones((), dtype=dtype, requires_grad=True)
    result = partial_transport(cost, mu, 5.0)
    assert torch.equal(result.weights, torch.full((12,), 1 / 12, dtype=dtype))
    stays = (5.0 * cost).neg().logsumexp(-1).neg().softmax(-1)
    for j in (0, 5, 11):
        (grad,) = torch.autograd.grad(result.weights[j], mu, retain_graph=True)
        torch.testing.assert_close(grad, stays[j] - 1 / 12)


def test_gradient_to_mu_moves_no_weight_in_sum_where_features_saturate() -> None:
    cost, mu = random_cost(10, 3, dtype=torch.float32), torch.tensor(0.5, requires_grad=True)
    result = partial_transport(cost, mu, 300.0)
    (grad,) = torch.autograd.grad(result.weights.sum(), mu)
    assert abs(float(grad)) < 1e-5


def test_vmap_and_functional_gradients_are_those_of_a_batch() -> None:
    features, prototypes = random_features(3, n=6, m=3, d=4)

    def embed(image: Tensor) -> Tensor:
        return sum_pool(image, prototypes, 0.3, 5.0).embedding

    torch.testing.assert_close(torch.vmap(embed)(features), embed(features))
    each = torch.vmap(torch.func.grad(lambda image: embed(image)[0]))(features)
    leaves = features.clone().requires_grad_()
    (grads,) = torch.autograd.grad(embed(leaves)[:, 0].sum(), leaves)
    torch.testing.assert_close(each, grads)


def test_gradients_to_batches_of_mu_and_eps_are_finite_differences() -> None:
    def solve(cost: Tensor, mu: Tensor, eps: Tensor) -> tuple[Tensor, ...]:
        result: TransportResult = partial_transport(cost, mu, eps)
        return result.weights, result.attributes, result.residual

    mu = torch.tensor([[0.2], [0.7]], dtype=torch.float64, requires_grad=True)
    eps = torch.tensor([1.0, 5.0, 10.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        solve, (random_cost(2, 3, 4, 3).requires_grad_(), mu, eps), fast_mode=True
    )


def test_gradient_of_the_weights_sums_to_zero_over_features() -> None:
    # Σp = 1 whatever the cost.
    cost = random_cost(3, 49, 8).requires_grad_()
    (grad,) = torch.autograd.grad(partial_transport(cost, 0.3, 5.0).weights.sum(), cost)
    assert float(grad.abs().max()) < 1e-15
