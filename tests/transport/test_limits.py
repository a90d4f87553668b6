"""μ = 1 is average pooling, ε → 0 tends to it, ε → ∞ is P1."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.transport import partial_transport, sum_pool
from transport.checker import assert_result
from transport.generators import random_cost, random_features, random_mask

DTYPES = [torch.float32, torch.float64]
COUNTS = [1, 3, 49, 3136]


def as_number(mu: float, dtype: torch.dtype) -> float | Tensor:
    return mu


def as_tensor(mu: float, dtype: torch.dtype) -> float | Tensor:
    return torch.tensor(mu, dtype=dtype)


@pytest.mark.parametrize("eps", [1e-3, 1e3])
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [as_number, as_tensor])
def test_mu_one_is_average_pooling(share, dtype: torch.dtype, n: int, eps: float) -> None:
    result = partial_transport(random_cost(2, n, 4, dtype=dtype), share(1.0, dtype), eps)
    average = torch.ones(2, n, dtype=dtype) / n
    assert torch.equal(result.weights, average)
    assert torch.equal(result.transported, average)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mu_one_is_the_average_of_valid_features(dtype: torch.dtype) -> None:
    mask = random_mask(20, 49)
    result = partial_transport(random_cost(20, 49, 4, dtype=dtype), 1.0, 5.0, mask=mask)
    assert torch.equal(result.weights, mask.to(dtype) / mask.sum(-1, keepdim=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_mu_one_assigns_by_softmax(dtype: torch.dtype) -> None:
    cost = random_cost(3, 49, 8, dtype=dtype)
    result = partial_transport(cost, 1.0, 5.0)
    assigned = (-5.0 * cost).softmax(-1)
    torch.testing.assert_close(result.plan(), assigned / 49)
    torch.testing.assert_close(result.attributes, assigned.mean(-2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [as_number, as_tensor])
def test_mu_one_passes_no_gradient_through_the_weights(share, dtype: torch.dtype) -> None:
    cost = random_cost(3, 49, 8, dtype=dtype).requires_grad_()
    result = partial_transport(cost, share(1.0, dtype), 5.0)
    (grad,) = torch.autograd.grad((result.weights * random_cost(49, dtype=dtype)).sum(), cost)
    assert (grad == 0).all()


@pytest.mark.parametrize("eps", [1e-2, 5.0, 100.0])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [as_number, as_tensor])
def test_mu_one_passes_the_gradient_of_the_mean_softmax(
    share, dtype: torch.dtype, eps: float
) -> None:
    cost = random_cost(3, 49, 8, dtype=dtype).requires_grad_()
    functional = random_cost(3, 8, seed=1, dtype=dtype)
    result = partial_transport(cost, share(1.0, dtype), eps)
    (grad,) = torch.autograd.grad((result.attributes * functional).sum(), cost)
    direct = (-eps * cost).softmax(-1).mean(-2)
    (expected,) = torch.autograd.grad((direct * functional).sum(), cost)
    torch.testing.assert_close(grad, expected)


def test_mu_one_pools_the_mean() -> None:
    features, prototypes = random_features(3, n=49, m=8, d=16, dtype=torch.float32)
    features.requires_grad_()
    embedding = sum_pool(features, prototypes, 1.0, 5.0).embedding
    torch.testing.assert_close(embedding, features.mean(1))
    (grad,) = torch.autograd.grad(embedding.sum(), features)
    torch.testing.assert_close(grad, torch.full_like(grad, 1 / 49))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mu", [0.01, 0.3, 0.9])
def test_eps_to_zero_is_average_pooling(dtype: torch.dtype, mu: float) -> None:
    cost = random_cost(2, 49, 8, dtype=dtype)
    for eps in (1e-2, 1e-4, 1e-6):
        weights = partial_transport(cost, mu, eps).weights
        # ℓ varies by at most 2ε, the weights by (1 − μ) times as much, relatively.
        assert float((49 * weights - 1).abs().max()) <= 2.1 * eps + 1e-6


@pytest.mark.parametrize("mu", [0.1, 0.3, 0.55, 0.95])
def test_eps_to_infinity_is_the_hard_problem(mu: float) -> None:
    cost = random_cost(4, 20, 5, seed=3)
    hard = partial_transport(cost, mu, 1.0, solver="hard")
    soft = partial_transport(cost, mu, 1e6)
    assert_result(soft, 1e-10, weights=hard.weights, attributes=hard.attributes)
    torch.testing.assert_close(soft.residual, hard.residual, rtol=0, atol=1e-10)
    torch.testing.assert_close(soft.plan(), hard.plan(), rtol=0, atol=1e-10)


def test_the_hard_problem_takes_the_nearest_and_the_last_in_part() -> None:
    cost = torch.tensor([[3.0, 0.5], [0.1, 2.0], [1.0, 1.5], [2.0, 2.5]])
    result = partial_transport(cost, mu=0.6, eps=1.0, solver="hard")
    sent = torch.tensor([0.25, 0.25, 0.1, 0.0])
    assert_result(result, 1e-6, weights=sent / 0.6, attributes=torch.tensor([0.35, 0.25]) / 0.6)
    assert not partial_transport(
        cost.requires_grad_(), mu=0.6, eps=1.0, solver="hard"
    ).weights.requires_grad
