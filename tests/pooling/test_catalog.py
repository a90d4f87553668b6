"""Poolings are found by name; wrong names and options say what is accepted."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling import POOLINGS, build_pooling, pooling_options
from sumpool.pooling.catalog import AUTHORS_OPTIONS


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_every_pooling_builds_for_maps_and_sequences(name: str) -> None:
    for cls, sequence, x in zip(POOLINGS[name], (False, True), (maps(), tokens()), strict=True):
        if cls is None:
            with pytest.raises(ValueError, match=f"'{re.escape(name)}' needs maps; on token"):
                build_pooling(name, CHANNELS, sequence=sequence)
            continue
        layer = build_pooling(name, CHANNELS, sequence=sequence).eval()
        assert type(layer) is cls
        assert layer.pool_type == name
        assert layer(x).shape == (3, layer.out_channels(CHANNELS))


@pytest.mark.parametrize(("name", "options"), AUTHORS_OPTIONS.items())
def test_the_authors_options_are_options_that_differ_from_the_defaults(
    name: str, options: dict[str, Any]
) -> None:
    build_pooling(name, CHANNELS, **options)
    defaults = inspect.signature(POOLINGS[name][0]).parameters
    assert all(defaults[option].default != value for option, value in options.items())


def test_an_unknown_pooling_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"one of \[.*'gap', .*'gsp'.*got 'max'"):
        build_pooling("max", CHANNELS)


def test_unknown_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"'gap' must be among .*got \['mu', 'prototypes'\]"):
        build_pooling("gap", CHANNELS, mu=0.3, prototypes=4)


def test_options_reach_the_layer() -> None:
    layer = build_pooling("gsp", CHANNELS, prototypes=3, mu=0.5, eps=2.0, init="random", seed=7)
    assert layer.prototypes.shape == (3, CHANNELS)
    assert (layer.mu, layer.eps, layer.init, layer.seed) == (0.5, 2.0, "random", 7)


def test_the_options_are_those_of_the_class() -> None:
    assert "num_prefix_tokens" in pooling_options("gap", sequence=True)
    assert {"prototypes", "mu", "eps", "seed"} <= set(pooling_options("gsp"))
    assert "channels" not in pooling_options("gsp")
