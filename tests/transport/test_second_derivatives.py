"""Gradients can be differentiated again, and rightly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.transport import partial_transport, prototype_costs, sum_pool
from transport.generators import random_cost, random_features, random_mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("mu", "eps"), [(0.3, 3.0), (0.8, 1.0)])
def test_second_derivatives_of_the_transport(mu: float, eps: float, masked: bool) -> None:
    mask = random_mask(5) if masked else None

    def solve(cost: Tensor, mu: Tensor, eps: Tensor) -> tuple[Tensor, ...]:
        result = partial_transport(cost, mu, eps, mask=mask)
        return result.weights, result.attributes, result.residual

    numbers = torch.tensor([mu, eps], dtype=torch.float64)
    inputs = random_cost(5, 3).requires_grad_(), *(it.requires_grad_() for it in numbers.clone())
    assert torch.autograd.gradgradcheck(solve, inputs, fast_mode=True)


def test_second_derivatives_of_the_costs() -> None:
    features, prototypes = random_features(2, n=3, m=2, d=3)
    inputs = features.requires_grad_(), prototypes.requires_grad_()
    assert torch.autograd.gradgradcheck(prototype_costs, inputs, fast_mode=True)


def test_second_derivatives_of_the_pooling() -> None:
    features, prototypes = random_features(n=4, m=2, d=2)
    inputs = features.requires_grad_(), prototypes.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda f, w: tuple(sum_pool(f, w, 0.4, 3.0)), inputs)
