"""The reversed role: the prototypes describe what is left out."""

from __future__ import annotations

import pytest
import torch

from sumpool.transport import partial_transport, sum_pool
from transport.generators import random_cost, random_features, random_mask


@pytest.mark.parametrize(
    ("solver", "mu"),
    [
        *(("exact", mu) for mu in (1e-3, 0.3, 0.999, 1 - 1e-6)),
        *(("hard", mu) for mu in (1e-3, 0.3, 0.9)),
    ],
)
def test_background_weights_sum_to_one(solver: str, mu: float) -> None:
    for dtype, tol in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        result = partial_transport(random_cost(3, 49, 8, dtype=dtype), mu, 5.0, solver=solver)
        background = result.background_weights
        assert (background >= 0).all()
        torch.testing.assert_close(background.sum(-1), torch.ones(3, dtype=dtype), rtol=0, atol=tol)


@pytest.mark.parametrize("solver", ["exact", "hard"])
@pytest.mark.parametrize("mu", [0.01, 0.3, 0.8])
def test_both_roles_share_each_feature(solver: str, mu: float) -> None:
    result = partial_transport(random_cost(3, 49, 8), mu, 5.0, solver=solver)
    torch.testing.assert_close(result.background_weights, result.residual / (1 - mu))
    whole = mu * result.weights + (1 - mu) * result.background_weights
    torch.testing.assert_close(whole, torch.full_like(whole, 1 / 49))


def test_both_roles_share_each_valid_feature() -> None:
    mask = random_mask(3, 49)
    result = partial_transport(random_cost(3, 49, 8), 0.3, 5.0, mask=mask)
    whole = 0.3 * result.weights + 0.7 * result.background_weights
    torch.testing.assert_close(whole, mask.double() / mask.sum(-1, keepdim=True))


def test_reversed_pooling_uses_the_background_weights() -> None:
    features, prototypes = random_features(3, n=20, m=5, d=6)
    front = sum_pool(features, prototypes, 0.3, 5.0)
    back = sum_pool(features, prototypes, 0.3, 5.0, background=True)
    whole = 0.3 * front.embedding + 0.7 * back.embedding
    torch.testing.assert_close(whole, features.mean(1))
    torch.testing.assert_close(back.embedding, (back.weights.unsqueeze(1) @ features).squeeze(1))
    torch.testing.assert_close(back.attributes, front.attributes)


def test_the_far_features_are_the_background() -> None:
    cost = torch.tensor([[0.0], [0.1], [1.5], [1.6]])
    result = partial_transport(cost, 0.5, 100.0)
    torch.testing.assert_close(result.background_weights, torch.tensor([0.0, 0.0, 0.5, 0.5]))
