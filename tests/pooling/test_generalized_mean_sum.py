"""GeMean+GSP: the mapped generalized mean of features weighed by generalized sum pooling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, PROTOTYPES, maps, tokens
from sumpool import GeneralizedSumPool1d
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.pooling.generalized_mean_sum import (
    GeneralizedMeanSumPool1d,
    GeneralizedMeanSumPool2d,
)
from transport.generators import random_mask

SIZE = 6


def pool1d(**options: Any) -> GeneralizedMeanSumPool1d:
    options = {"init": "random", "dtype": torch.float64, **options}
    return GeneralizedMeanSumPool1d(CHANNELS, SIZE, PROTOTYPES, **options)


def positive(*size: int) -> Tensor:
    return tokens(*size, dtype=torch.float64).abs() + 0.05


def looped(layer: GeneralizedMeanSumPool1d, x: Tensor) -> Tensor:
    """The embedding of one sequence (n, C): channels and tokens one by one."""
    weight, p = layer.map.weight.detach(), layer.p.item()
    local = torch.stack([weight @ token for token in x])
    shares = layer.gsp.pool(local.unsqueeze(0)).weights[0].tolist()
    n = len(shares)
    means = []
    for c in range(CHANNELS):
        powers = [max(n * share * float(x[j, c]), 1e-6) ** p for j, share in enumerate(shares)]
        means.append((sum(powers) / n) ** (1 / p))
    return weight @ torch.tensor(means, dtype=torch.float64)


@pytest.mark.parametrize("p", [3.0, 1.7])
def test_the_embedding_equals_the_definition(p: float) -> None:
    layer, x = pool1d(p=p), tokens(dtype=torch.float64)  # negative features count as the floor
    expected = torch.stack([looped(layer, it) for it in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_mu_one_is_the_mapped_generalized_mean(masked: bool) -> None:
    layer, x = pool1d(mu=1.0), positive()
    mask = random_mask(3, 30) if masked else None
    expected = layer.map(generalized_mean(x, 3.0, mask))
    torch.testing.assert_close(layer(x, mask), expected)


def test_mu_one_and_p_one_is_the_mapped_mean() -> None:
    layer, x = pool1d(mu=1.0, p=1.0), positive()
    torch.testing.assert_close(layer(x), layer.map(x.mean(1)))


def test_p_one_is_gsp_of_positive_features() -> None:
    layer, x = pool1d(p=1.0, eps=1.0), positive()
    torch.testing.assert_close(layer(x), layer.gsp(layer.map(x)))


def test_weights_attributes_and_plan_are_those_of_gsp_on_the_mapped_features() -> None:
    layer = GeneralizedMeanSumPool2d(CHANNELS, SIZE, PROTOTYPES, init="random")
    alone = GeneralizedSumPool1d(SIZE, PROTOTYPES, init="random")
    got, expected = layer.pool(maps()), alone.pool(layer.map(maps().flatten(2).mT))
    torch.testing.assert_close(got.weights.flatten(1), expected.weights)
    torch.testing.assert_close(got.attributes, expected.attributes)
    torch.testing.assert_close(layer.plan(maps()).sum(1), got.weights)


def test_prototypes_are_set_by_the_first_training_pass() -> None:
    layer, twin = (GeneralizedMeanSumPool2d(CHANNELS, SIZE, PROTOTYPES) for _ in range(2))
    twin.load_state_dict(layer.state_dict())
    assert not layer.prototypes_ready
    layer(maps())
    twin.initialize_prototypes(maps())
    assert layer.prototypes_ready
    assert torch.equal(layer.prototypes, twin.prototypes)


def test_the_exponent_is_learned_unless_it_is_held() -> None:
    layer = pool1d()
    layer(positive()).sum().backward()
    assert layer.p.item() == 3.0
    assert layer.p.grad.abs() > 0
    assert not pool1d(learn_p=False).p.requires_grad


def test_resetting_brings_the_exponent_back() -> None:
    layer = pool1d(p=2.0)
    with torch.no_grad():
        layer.p += 1
    layer.reset_parameters()
    assert layer.p.item() == 2.0


@pytest.mark.parametrize("masked", [False, True])
def test_powers_are_weighed_as_in_a_loop(masked: bool) -> None:
    layer = pool1d(weigh="powers", eps=20.0)
    x = positive()
    mask = random_mask(*x.shape[:2]) if masked else None
    out = layer.pool(x, mask)
    p, floored = out.weights, x.clamp_min(layer.floor)
    power = float(layer.p.detach())
    mean = (p.unsqueeze(-1) * floored**power).sum(1) ** (1 / power)
    torch.testing.assert_close(out.embedding, layer.map(mean), rtol=1e-4, atol=1e-5)
    out.embedding.sum().backward()
    assert all(bool(it.grad.isfinite().all()) for it in layer.parameters() if it.grad is not None)


def test_powers_at_mu_one_are_the_mapped_generalized_mean() -> None:
    layer = pool1d(weigh="powers", mu=1.0)
    x = positive()
    expected = layer.map(generalized_mean(x, layer.p))
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_other_values_of_weigh_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weigh must be one of .*, got 'norms'"):
        pool1d(weigh="norms")


def test_while_it_averages_it_is_the_map_of_the_generalized_mean() -> None:
    layer, x = GeneralizedMeanSumPool2d(6, embedding_size=5, prototypes=3), torch.rand(2, 6, 4, 3)
    layer.averaging = True
    mean = x.clamp_min(layer.floor).pow(3.0).mean((2, 3)).pow(1 / 3.0)
    torch.testing.assert_close(layer(x), layer.map(mean))
