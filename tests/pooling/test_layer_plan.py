"""The plan of a layer: its margins are what the layer pools by."""

from __future__ import annotations

import pytest
import torch

from pooling.layers import PROTOTYPES, gsp1d, gsp2d, maps, tokens
from sumpool.transport import partial_transport, prototype_costs
from transport.generators import random_mask

SETTINGS = [
    {},
    {"mu": 1.0},
    {"mu": 0.05, "eps": 100.0},
    {"learn_mu": True, "learn_eps": True},
    {"solver": "hard"},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_margins_are_the_weights_and_the_attributes(options) -> None:
    layer, x = gsp2d(**options), maps()
    plan, out = layer.plan(x), layer.pool(x)
    assert plan.shape == (3, PROTOTYPES, 5, 6)
    torch.testing.assert_close(plan.sum(1), out.weights)
    torch.testing.assert_close(plan.sum((2, 3)), out.attributes)
    torch.testing.assert_close(plan.sum((1, 2, 3)), torch.ones(3))


def test_the_plan_is_that_of_the_transport() -> None:
    layer, x = gsp2d(), maps()
    cost = prototype_costs(x.flatten(2).mT, layer.prototypes)
    expected = partial_transport(cost, layer.mu, layer.eps).plan() / layer.mu  # (B, n, m)
    torch.testing.assert_close(layer.plan(x).flatten(2), expected.mT)


def test_prefix_tokens_are_not_part_of_the_plan() -> None:
    layer, x = gsp1d(num_prefix_tokens=2), tokens()
    plan = layer.plan(x)
    assert plan.shape == (3, PROTOTYPES, 28)
    torch.testing.assert_close(plan.sum(1), layer.pool(x).weights)


def test_invalid_positions_hold_no_mass_whatever_stands_there() -> None:
    layer, x, mask = gsp2d(), maps(), random_mask(3, 5, 6)
    x = x.masked_fill(~mask.unsqueeze(1), float("nan"))
    plan, out = layer.plan(x, mask), layer.pool(x, mask)
    assert (plan.sum(1)[~mask] == 0).all()
    torch.testing.assert_close(plan.sum(1), out.weights)
    torch.testing.assert_close(plan.sum((2, 3)), out.attributes)


def test_background_layers_show_what_leaves() -> None:
    layer, x = gsp2d(background=True), maps()
    plan = layer.plan(x)
    torch.testing.assert_close(plan.sum((2, 3)), layer.pool(x).attributes)
    torch.testing.assert_close(plan.sum(1), gsp2d().pool(x).weights)


def test_looking_at_the_plan_initializes_nothing() -> None:
    layer = gsp2d(init="k-center").train()
    layer.plan(maps())
    assert not layer.prototypes_ready


def test_the_plan_is_solved_in_float32_under_autocast() -> None:
    layer, x = gsp2d(), maps()
    with torch.autocast("cpu", torch.bfloat16):
        plan = layer.plan(x)
    torch.testing.assert_close(plan, layer.plan(x))
