"""A mask is the same as cutting the invalid features away."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.pooling import GlobalAveragePool1d
from sumpool.transport import partial_transport, sum_pool
from transport.checker import assert_result
from transport.generators import random_cost, random_features, random_mask

SOLVERS = ["exact", "iterative", "hard"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("mu", [0.1, 0.7, 1.0])
def test_a_mask_equals_cropping(solver: str, mu: float) -> None:
    cost, mask = random_cost(4, 20, 5).requires_grad_(), random_mask(4, 20)
    masked = partial_transport(cost, mu, 5.0, mask=mask, solver=solver)
    assert_result(masked, 1e-12, promises=["mass"])
    for image in range(4):
        valid = mask[image]
        alone = partial_transport(cost[image, valid], mu, 5.0, solver=solver)
        torch.testing.assert_close(masked.weights[image, valid], alone.weights)
        torch.testing.assert_close(masked.residual[image, valid], alone.residual)
        torch.testing.assert_close(masked.attributes[image], alone.attributes)
        torch.testing.assert_close(masked.plan()[image, valid], alone.plan())
        for got, expected in zip(masked.errors(), alone.errors(), strict=True):
            torch.testing.assert_close(got[image], expected, rtol=1e-9, atol=1e-14)
        assert (masked.weights[image, ~valid] == 0).all()
        assert (masked.residual[image, ~valid] == 0).all()
        assert (masked.plan()[image, ~valid] == 0).all()


@pytest.mark.parametrize("background", [False, True])
def test_a_mask_equals_cropping_in_the_gradients(background: bool) -> None:
    features, prototypes = random_features(4, n=20, m=5, d=6)
    mask = random_mask(4, 20)
    inputs = features.requires_grad_(), prototypes.requires_grad_()

    def loss(features: Tensor, mask: Tensor | None) -> Tensor:
        out = sum_pool(features, prototypes, 0.3, 5.0, mask=mask, background=background)
        # Squares, so that no term vanishes by Σp = 1.
        return out.embedding.square().sum() + out.weights.square().sum() + out.attributes[..., 0]

    masked = torch.autograd.grad(sum(loss(features[it], mask[it]) for it in range(4)), inputs)
    cropped = torch.autograd.grad(
        sum(loss(features[it, mask[it]], None) for it in range(4)), inputs
    )
    for got, expected in zip(masked, cropped, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-13)
    assert (masked[0][~mask] == 0).all()
    assert (masked[0][mask] != 0).any(-1).all()


@pytest.mark.parametrize("garbage", [0.0, 1e4])
def test_what_invalid_features_hold_does_not_matter(garbage: float) -> None:
    clean, prototypes = random_features(3, n=20, m=5, d=6, dtype=torch.float32)
    mask = random_mask(3, 20)
    dirty = torch.where(mask.unsqueeze(-1), clean, garbage)
    grads = []
    for features in (clean, dirty):
        inputs = features.clone().requires_grad_(), prototypes.clone().requires_grad_()
        out = sum_pool(*inputs, 0.3, 5.0, mask=mask)
        loss = out.embedding.square().sum() + out.weights.square().sum() + out.attributes[0, 0]
        grads.append((*out, *torch.autograd.grad(loss, inputs)))
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_full_mask_is_no_mask() -> None:
    cost = random_cost(3, 20, 5)
    masked = partial_transport(cost, 0.3, 5.0, mask=torch.ones(3, 20, dtype=torch.bool))
    plain = partial_transport(cost, 0.3, 5.0)
    assert_result(masked, 1e-13, weights=plain.weights, attributes=plain.attributes)


def test_one_mask_may_serve_all_images() -> None:
    cost, mask = random_cost(3, 20, 5).requires_grad_(), random_mask(20)
    shared = partial_transport(cost, 0.3, 5.0, mask=mask)
    own = partial_transport(cost, 0.3, 5.0, mask=mask.expand(3, 20))
    torch.testing.assert_close(shared.weights, own.weights)
    (grad,) = torch.autograd.grad(shared.weights.square().sum(), cost, retain_graph=True)
    (expected,) = torch.autograd.grad(own.weights.square().sum(), cost)
    torch.testing.assert_close(grad, expected)


def test_a_single_valid_feature_gets_all_the_weight() -> None:
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[torch.arange(3), torch.tensor([0, 7, 19])] = True
    for solver in SOLVERS:
        result = partial_transport(random_cost(3, 20, 5), 0.3, 5.0, mask=mask, solver=solver)
        torch.testing.assert_close(result.weights, mask.double())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_whatever_stands_at_invalid_positions_is_not_read(value: float) -> None:
    features, prototypes = random_features(2, n=6, m=3, d=4)
    mask = random_mask(2, 6)
    dirty = features.masked_fill(~mask.unsqueeze(-1), value).requires_grad_()
    clean = sum_pool(features, prototypes, 0.3, 5.0, mask=mask)
    found = sum_pool(dirty, prototypes, 0.3, 5.0, mask=mask)
    for f, c in zip(found, clean, strict=True):
        torch.testing.assert_close(f, c)
    (gradient,) = torch.autograd.grad(found.embedding.sum(), dirty)
    assert gradient.isfinite().all()
    average = GlobalAveragePool1d()(dirty, mask)
    torch.testing.assert_close(average, GlobalAveragePool1d()(features, mask))
