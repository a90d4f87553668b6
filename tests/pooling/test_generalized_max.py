"""Generalized max pooling: weights that make every local feature count alike."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling import GeneralizedMaxPool1d, GeneralizedMaxPool2d
from sumpool.pooling.rivals.generalized_max import equalizing_weights
from transport.generators import random_mask


def primal(features: Tensor, ridge: float) -> Tensor:
    """The pooled vector of one image (n, C) from the system of channels, by elimination."""
    gram = sum(torch.outer(f, f) for f in features) + ridge * torch.eye(features.shape[-1]).double()
    return torch.linalg.solve(gram, sum(features))


@pytest.mark.parametrize("ridge", [1e-2, 1.0, 30.0])
@pytest.mark.parametrize("length", [1, 5, 30])  # fewer positions than channels, and more
def test_it_equals_the_primal_form_image_by_image(ridge: float, length: int) -> None:
    x, mask = tokens(length=length, dtype=torch.float64), random_mask(3, length)
    for it in (None, mask):
        got = GeneralizedMaxPool1d(ridge)(x, it)
        for image in range(3):
            valid = x[image] if it is None else x[image, it[image]]
            torch.testing.assert_close(got[image], primal(valid, ridge))


def test_the_weights_solve_their_system() -> None:
    x, mask = tokens(dtype=torch.float64), random_mask(3, 30)
    alpha = equalizing_weights(x, 0.5, mask)
    for image in range(3):
        for j in range(30):
            if not mask[image, j]:
                assert alpha[image, j] == 0
                continue
            similarity = sum(
                float(alpha[image, i]) * float(x[image, i] @ x[image, j])
                for i in range(30)
                if mask[image, i]
            )
            assert math.isclose(similarity + 0.5 * float(alpha[image, j]), 1, rel_tol=1e-9)


def test_the_weights_given_are_shares_of_their_size() -> None:
    x = tokens()
    alpha = equalizing_weights(x, 1.0)
    assert (alpha < 0).any()
    out = GeneralizedMaxPool1d().pool(x)
    expected = alpha.abs() / alpha.abs().sum(-1, keepdim=True)
    torch.testing.assert_close(out.weights, expected.float())


def test_every_feature_is_equally_similar_to_the_pooled_vector_without_a_ridge() -> None:
    x = tokens(length=5)  # fewer than channels, so that it is possible
    pooled = GeneralizedMaxPool1d(ridge=1e-9)(x)
    torch.testing.assert_close((x @ pooled.unsqueeze(-1)).squeeze(-1), torch.ones(3, 5))


def test_repeating_a_feature_changes_little_without_a_ridge() -> None:
    x = tokens(length=4)
    burst = torch.cat([x, x[:, :1].expand(3, 50, CHANNELS)], 1)
    layer = GeneralizedMaxPool1d(ridge=1e-8)
    torch.testing.assert_close(layer(burst), layer(x))


def test_a_large_ridge_is_sum_pooling() -> None:
    x = tokens(dtype=torch.float64)
    torch.testing.assert_close(
        1e9 * GeneralizedMaxPool1d(ridge=1e9)(x), x.sum(1), rtol=1e-6, atol=1e-6
    )


def test_one_position_is_scaled() -> None:
    x = maps(height=1, width=1)[..., 0, 0]
    expected = x / (x.square().sum(-1, keepdim=True) + 1)
    torch.testing.assert_close(GeneralizedMaxPool2d()(x[..., None, None]), expected)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e4, 1e8])
def test_equal_features_of_any_magnitude_have_equal_weights(scale: float) -> None:
    # A system of rank one: in float32 a ridge of 1 beside 1e8 would be lost.
    x = (scale * torch.ones(2, 20, CHANNELS)).requires_grad_()
    out = GeneralizedMaxPool1d().pool(x)
    torch.testing.assert_close(out.weights, torch.full((2, 20), 1 / 20), rtol=0, atol=1e-4)
    if scale < 1e8:  # where the ridge is not yet below the rounding of float64
        expected = 20 * scale / (20 * CHANNELS * scale**2 + 1)
        torch.testing.assert_close(out.embedding, torch.full((2, CHANNELS), expected))
    out.embedding.sum().backward()
    assert x.grad.isfinite().all()
