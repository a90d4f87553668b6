"""Costs: distances between normalized vectors, with a gradient everywhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sumpool.transport import lipschitz_normalize, prototype_costs, sum_pool
from transport.generators import random_features


def naive_costs(features: Tensor, prototypes: Tensor) -> Tensor:
    """‖ω̄_i − f̄_j‖ one pair and one coordinate at a time."""

    def normalized(vector: Tensor) -> list[float]:
        values = vector.tolist()
        size = max(1.0, math.sqrt(math.fsum(it * it for it in values)))
        return [it / size for it in values]

    rows = [normalized(it) for it in prototypes]
    costs = [
        [math.dist(normalized(feature), row) for row in rows]
        for feature in features.reshape(-1, features.shape[-1])
    ]
    return torch.tensor(costs, dtype=torch.float64).reshape(*features.shape[:-1], len(rows))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [1, 2, 16])
def test_costs_equal_a_naive_loop(dtype: torch.dtype, d: int) -> None:
    features, prototypes = random_features(2, 3, n=7, m=5, d=d, dtype=dtype)
    costs = prototype_costs(features, prototypes)
    assert costs.dtype == dtype
    expected = naive_costs(features, prototypes)
    # The squares carry the rounding of the product, as large as that of the norms, at most 2.
    rounding = 32 * torch.finfo(dtype).eps
    torch.testing.assert_close(costs.double() ** 2, expected**2, rtol=0, atol=rounding)
    apart = expected > 0.1
    torch.testing.assert_close(costs[apart].double(), expected[apart], rtol=0, atol=10 * rounding)


def test_costs_lie_between_zero_and_two() -> None:
    features, prototypes = random_features(2, n=50, m=8, d=3, dtype=torch.float32)
    costs = prototype_costs(features * 1e4, torch.cat([prototypes, -features[0, :3] * 1e4]))
    assert (costs >= 0).all()
    assert (costs <= 2 + 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [0.0, 1e-3, 0.5, 1.0, 3.0, 1e4])
def test_cost_and_gradient_at_distance_zero_are_zero(dtype: torch.dtype, norm: float) -> None:
    direction = torch.nn.functional.normalize(torch.randn(5, 16, dtype=dtype), dim=-1)
    features = (norm * direction).requires_grad_()
    prototypes = (norm * direction).clone().requires_grad_()
    own = prototype_costs(features, prototypes).diagonal()
    assert (own == 0).all()
    for grad in torch.autograd.grad(own.sum(), (features, prototypes)):
        assert (grad == 0).all()


def test_features_equal_to_prototypes_pool_with_finite_gradients() -> None:
    _, prototypes = random_features(n=1, m=6, d=4, dtype=torch.float32)
    features = prototypes.clone().requires_grad_()
    out = sum_pool(features, prototypes.requires_grad_(), 0.4, 5.0)
    loss = out.embedding.sum() + out.weights[0] + out.attributes[0]
    for grad in torch.autograd.grad(loss, (features, prototypes)):
        assert grad.isfinite().all()


def test_gradients_of_the_costs_are_finite_differences() -> None:
    features, prototypes = random_features(2, n=4, m=3, d=5)
    inputs = features.requires_grad_(), prototypes.requires_grad_()
    assert torch.autograd.gradcheck(prototype_costs, inputs)


def test_normalization_leaves_the_unit_ball_alone() -> None:
    inside = torch.nn.functional.normalize(torch.randn(20, 8), dim=-1) * torch.rand(20, 1) * 0.99
    assert torch.equal(lipschitz_normalize(inside), inside)


def test_normalization_maps_the_outside_to_the_sphere() -> None:
    outside = torch.nn.functional.normalize(torch.randn(20, 8), dim=-1)
    for norm in (1.5, 1e4):
        torch.testing.assert_close(lipschitz_normalize(outside * norm), outside)


def test_normalization_never_stretches_a_distance() -> None:
    x, y = torch.randn(2, 200, 4, dtype=torch.float64) * 2
    before = (x - y).norm(dim=-1)
    after = (lipschitz_normalize(x) - lipschitz_normalize(y)).norm(dim=-1)
    assert (after <= before + 1e-12).all()


def test_normalization_has_a_gradient_at_zero() -> None:
    x = torch.zeros(3, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(lipschitz_normalize(x).sum(), x)
    assert torch.equal(grad, torch.ones(3, 4))


def test_vectors_on_the_unit_sphere_count_as_inside_whichever_way_they_are_rounded() -> None:
    # Along themselves their gradient is not taken away, as it is from anything longer.
    features, prototypes = torch.tensor([[0.5, 0.0]]), torch.tensor([[0.0, 1.0]])
    gradients = []
    for scale in (1 - 1e-7, 1.0, 1 + 1e-7, 1 + 1e-5):
        w = (prototypes * scale).requires_grad_()
        gradients.append(torch.autograd.grad(prototype_costs(features, w).sum(), w)[0])
    below, at, above, longer = gradients
    torch.testing.assert_close(below, at)
    torch.testing.assert_close(above, at)
    assert at[0, 1] > 0.5
    assert abs(float(longer[0, 1])) < 1e-4
