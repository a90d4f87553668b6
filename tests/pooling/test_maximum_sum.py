"""GMP+GSP: the mapped maximum plus generalized sum pooling of the mapped features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, PROTOTYPES, maps, tokens
from sumpool import GeneralizedSumPool1d
from sumpool.pooling.maximum_sum import MaximumSumPool1d, MaximumSumPool2d
from sumpool.transport import lipschitz_normalize
from transport.generators import random_mask

SIZE = 6


def pool1d(**options: Any) -> MaximumSumPool1d:
    options = {"init": "random", "dtype": torch.float64, **options}
    return MaximumSumPool1d(CHANNELS, SIZE, PROTOTYPES, **options)


def looped(layer: MaximumSumPool1d, x: Tensor) -> Tensor:
    """The embedding of one sequence (n, C): channels and tokens one by one."""
    weight = layer.map.weight.detach()
    strongest = torch.stack([max(x[:, c]) for c in range(CHANNELS)])
    local = torch.stack([weight @ token for token in x])
    shares = layer.gsp.pool(local.unsqueeze(0)).weights[0].detach()
    total = weight @ strongest
    for share, f in zip(shares, local, strict=True):
        total = total + share * f
    return total


def test_the_embedding_equals_the_definition() -> None:
    layer, x = pool1d(), tokens(dtype=torch.float64)
    expected = torch.stack([looped(layer, it) for it in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_mu_one_is_the_mapped_sum_of_maximum_and_mean(masked: bool) -> None:
    layer, x = pool1d(mu=1.0), tokens(dtype=torch.float64)
    mask = random_mask(3, 30) if masked else torch.ones(3, 30, dtype=torch.bool)
    valid = [x[it, mask[it]] for it in range(3)]
    expected = layer.map(torch.stack([it.amax(0) + it.mean(0) for it in valid]))
    torch.testing.assert_close(layer(x, mask if masked else None), expected)


def test_weights_attributes_and_plan_are_those_of_gsp_on_the_mapped_features() -> None:
    layer = MaximumSumPool2d(CHANNELS, SIZE, PROTOTYPES, init="random")
    alone = GeneralizedSumPool1d(SIZE, PROTOTYPES, init="random")
    local = layer.map(maps().flatten(2).mT)
    got, expected = layer.pool(maps()), alone.pool(local)
    torch.testing.assert_close(got.weights.flatten(1), expected.weights)
    torch.testing.assert_close(got.attributes, expected.attributes)
    plan = layer.plan(maps())
    assert plan.shape == (3, PROTOTYPES, 5, 6)
    torch.testing.assert_close(plan.sum(1), got.weights)
    torch.testing.assert_close(plan.flatten(2), alone.plan(local))


@pytest.mark.parametrize("explicit", [False, True])
def test_prototypes_are_set_from_the_mapped_features(explicit: bool) -> None:
    layer = MaximumSumPool2d(CHANNELS, SIZE, PROTOTYPES)
    assert not layer.prototypes_ready
    if explicit:
        layer.initialize_prototypes(maps())
    else:
        layer(maps())
    assert layer.prototypes_ready
    local = lipschitz_normalize(layer.map(maps().flatten(2).mT)).flatten(0, 1)
    near = torch.cdist(layer.prototypes, local).amin(-1)
    torch.testing.assert_close(near, torch.zeros(PROTOTYPES), rtol=0, atol=1e-3)
    before = layer.prototypes.clone()
    layer(maps(seed=1))
    assert torch.equal(layer.prototypes, before)
    loaded = MaximumSumPool2d(CHANNELS, SIZE, PROTOTYPES, seed=4)
    loaded.load_state_dict(layer.state_dict())
    torch.testing.assert_close(loaded(maps(seed=2)), layer(maps(seed=2)))


def test_masked_positions_are_never_picked() -> None:
    layer, mask = pool1d(init="k-center"), random_mask(3, 30)
    x = tokens(dtype=torch.float64).masked_fill(~mask.unsqueeze(-1), torch.nan)
    layer.initialize_prototypes(x, mask)
    assert layer.prototypes.isfinite().all()


def test_one_map_serves_both_parts() -> None:
    names = dict(pool1d(learn_mu=True).named_parameters())
    assert set(names) == {"map.weight", "gsp.prototypes", "gsp.mu_logit"}


def test_options_reach_gsp() -> None:
    layer = MaximumSumPool2d(
        8, prototypes=5, mu=0.2, eps=7.0, background=True, solver="iterative", fused=False, seed=3
    )
    assert (layer.gsp.mu, layer.gsp.eps, layer.gsp.seed) == (0.2, 7.0, 3)
    assert (layer.gsp.solver, layer.gsp.fused, layer.background) == ("iterative", False, True)
    assert layer.prototypes.shape == (5, 128)


def test_while_it_averages_it_is_the_map_of_maximum_and_mean() -> None:
    layer, x = MaximumSumPool2d(6, embedding_size=5, prototypes=3), torch.randn(2, 6, 4, 3)
    layer.averaging = True
    expected = layer.map(x.amax((2, 3)) + x.mean((2, 3)))
    torch.testing.assert_close(layer(x), expected)
    assert not bool(layer.prototypes_ready)
    layer.averaging = False
    assert not layer.gsp.averaging


def test_hooks_of_the_map_run_in_every_precision() -> None:
    layer, half = MaximumSumPool2d(CHANNELS, SIZE, PROTOTYPES, init="random"), maps().half()
    plain = layer(half)
    layer.map.register_forward_hook(lambda _, __, out: out / 2)
    assert torch.equal(layer(half), layer(half.float()).half())
    assert not torch.equal(layer(half), plain)
