"""Order does not matter: permutations and batches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.transport import partial_transport
from transport.checker import assert_result
from transport.generators import random_cost, source

SOLVERS = ["exact", "iterative", "hard"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_features_are_permuted_alike(solver: str) -> None:
    cost = random_cost(3, 20, 5)
    order = torch.randperm(20, generator=source(1))
    straight = partial_transport(cost, 0.3, 5.0, solver=solver)
    permuted = partial_transport(cost[:, order], 0.3, 5.0, solver=solver)
    torch.testing.assert_close(permuted.weights, straight.weights[:, order])
    torch.testing.assert_close(permuted.residual, straight.residual[:, order])
    torch.testing.assert_close(permuted.attributes, straight.attributes)
    torch.testing.assert_close(permuted.plan(), straight.plan()[:, order])


@pytest.mark.parametrize("solver", SOLVERS)
def test_prototypes_are_permuted_alike(solver: str) -> None:
    cost = random_cost(3, 20, 5)
    order = torch.randperm(5, generator=source(1))
    straight = partial_transport(cost, 0.3, 5.0, solver=solver)
    permuted = partial_transport(cost[..., order], 0.3, 5.0, solver=solver)
    torch.testing.assert_close(permuted.weights, straight.weights)
    torch.testing.assert_close(permuted.residual, straight.residual)
    torch.testing.assert_close(permuted.attributes, straight.attributes[:, order])
    torch.testing.assert_close(permuted.plan(), straight.plan()[..., order])


def test_a_constant_added_to_all_costs_changes_nothing() -> None:
    cost = random_cost(3, 20, 5)
    straight = partial_transport(cost, 0.3, 5.0)
    shifted = partial_transport(cost + 10, 0.3, 5.0)
    assert_result(shifted, 1e-12, weights=straight.weights, attributes=straight.attributes)


def test_a_nearer_feature_weighs_more() -> None:
    cost = random_cost(3, 20, 1)
    for solver in SOLVERS:
        weights = partial_transport(cost, 0.3, 5.0, solver=solver).weights
        by_cost = weights.gather(-1, cost[..., 0].argsort(-1))
        assert (by_cost.diff() <= 0).all()


def batches() -> list[tuple[float | Tensor, float | Tensor]]:
    mu = torch.tensor([0.05, 0.3, 0.6, 1.0], dtype=torch.float64)
    eps = torch.tensor([0.5, 5.0, 20.0, 100.0], dtype=torch.float64)
    return [(mu, eps), (mu, 5.0), (0.3, eps), (mu[1], eps), (mu[:1], eps[0])]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", range(5))
def test_a_batch_of_settings_is_solved_as_one_by_one(solver: str, case: int) -> None:
    mu, eps = batches()[case]
    cost = random_cost(4, 20, 5).requires_grad_()

    def readings(cost: Tensor, mu: float | Tensor, eps: float | Tensor) -> list[Tensor]:
        result = partial_transport(cost, mu, eps, solver=solver)
        return [result.weights, result.residual, result.attributes, result.plan()]

    def pick(value: float | Tensor, image: int) -> float:
        return float(torch.as_tensor(value, dtype=torch.float64).expand(4)[image])

    together = readings(cost, mu, eps)
    alone = [readings(cost[it], pick(mu, it), pick(eps, it)) for it in range(4)]
    for batch, images in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(batch, torch.stack(images), rtol=1e-10, atol=1e-14)
    if solver != "hard":
        (batch,) = torch.autograd.grad(sum(it.square().sum() for it in together), cost)
        loss = sum(it.square().sum() for image in alone for it in image)
        (images,) = torch.autograd.grad(loss, cost)
        torch.testing.assert_close(batch, images, rtol=1e-8, atol=1e-13)
