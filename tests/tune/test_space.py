"""What a search varies: ranges and choices from text, errors that say what is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sumpool.training import ConfigError, TrainConfig
from sumpool.training.config import flat
from sumpool.training.values.recipes import with_recipe
from sumpool.tune.space import (
    FROZEN_SPACE,
    SPACE,
    Dimension,
    parse_space,
    space_from_json,
    space_to_json,
)

CONFIG = TrainConfig()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "optimizer.lr=1e-5..1e-3:log",
            Dimension("optimizer.lr", low=1e-5, high=1e-3, log=True),
        ),
        ("optimizer.weight-decay=0..0.01", Dimension("optimizer.weight_decay", high=0.01)),
        ("batch_size=16..64", Dimension("batch_size", low=16, high=64, whole=True)),
        ("batch_size=16..64:log", Dimension("batch_size", low=16, high=64, log=True, whole=True)),
        ("gsp.eps=1..9:int", Dimension("gsp.eps", low=1, high=9, whole=True)),
        ("pool=gap,gemean,gsp", Dimension("pool", ("gap", "gemean", "gsp"))),
        ("optimizer.ema=null,0.99", Dimension("optimizer.ema", (None, 0.99))),
        ("gsp.mu=1,0.5", Dimension("gsp.mu", (1.0, 0.5))),
        ("flip=true,false", Dimension("flip", (True, False))),
    ],
)
def test_a_text_is_a_range_or_choices(text: str, expected: Dimension) -> None:
    (found,) = parse_space([text], CONFIG)
    assert found == expected
    assert parse_space([str(found)], CONFIG) == (found,)
    assert space_from_json(space_to_json([found])) == (found,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("optimizer.lr", r"vary must be KEY=A\.\.B, .* got 'optimizer.lr'"),
        ("lr=1..2", r"vary names no option of `sumpool train`: 'lr'; close ones are optimizer.lr"),
        ("pooling.name=gap,gsp", r"vary names no option .* 'pooling.name'"),
        ("pool=gap,gpa", r"pool must be one of gap, .* got 'gpa': did you mean gsp"),
        ("pool=gap", "vary pool needs two different values or more, got 'gap'"),
        ("pool=1..2", "vary pool takes no range: it must be text"),
        ("optimizer.lr=2..1", r"vary optimizer.lr needs a range A\.\.B with A below B"),
        ("optimizer.lr=0..1:log", "a logarithmic range begins above 0, got 0"),
        ("optimizer.lr=1e-5..1:lin", r"vary optimizer.lr takes A\.\.B, .* got '1e-5\.\.1:lin'"),
        ("optimizer.lr=1e-5..99", "optimizer.lr must be at most 10"),
        ("gsp.mu=0..1", r"gsp.mu must lie in \(0, 1\], got 0"),
        ("optimizer.lr=a..b", "vary optimizer.lr must be a number, got 'a'"),
        ("batch_size=1.5..3", "vary batch_size must be a whole number, got '1.5'"),
        ("optimizer.schedule=cosine,step", "vary optimizer.schedule must be constant or cosine"),
        ("seed=0..9", "vary cannot change seed: it is the same in all trials"),
        ("loss_options=1,2", "vary takes options with one value, loss_options is a table"),
        ("chance.pool=1..2", "the option chance.pool is called ccp.candidates"),
    ],
)
def test_an_error_names_the_key_and_what_it_takes(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_space([text], CONFIG)
    assert "\n" not in str(caught.value)


def test_values_of_a_range_are_rounded_and_choices_are_not() -> None:
    span, choices = parse_space(
        ["optimizer.lr=1e-4..1e-2:log", "optimizer.weight_decay=0.12345,0.5"], CONFIG
    )
    assert (span.rounded(0.00123456), span.rounded(1.0)) == (0.00123, 0.01)
    assert (choices.rounded(0.12345), choices.rounded(0.5)) == (0.12345, 0.5)


def test_a_key_is_given_once() -> None:
    with pytest.raises(ConfigError, match="vary gives pool twice"):
        parse_space(["pool=gap,gsp", "pool=gap,gmp"], CONFIG)


def test_the_declared_space_holds_where_the_user_sets_nothing() -> None:
    assert [str(it).partition("=")[0] for it in parse_space([], CONFIG)] == [
        it.partition("=")[0] for it in SPACE
    ]
    assert "pool" not in {it.name for it in parse_space([], CONFIG, ["pool"])}
    for config, texts in (
        (CONFIG, SPACE),
        (replace(CONFIG, freeze_backbone=True), FROZEN_SPACE),
        (with_recipe("best", {}), SPACE),
        (with_recipe("best", {"freeze_backbone": True}), FROZEN_SPACE),
    ):
        space = parse_space([], config)
        assert len(space) == len(texts)
        for dimension in space:
            value = flat(config)[dimension.name]
            assert value is None or value in dimension
