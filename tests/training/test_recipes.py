"""Recipes: what a user gives wins, the papers stay one flag away, small data fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sumpool.protocols import PROTOCOLS, Member
from sumpool.training import RECIPES, ConfigError, TrainConfig, resolve, with_recipe
from sumpool.training.config import flat, read_config, write_config
from sumpool.training.run import merge
from sumpool.training.settings import check_effects
from sumpool.training.values.recipes import recipe_options

#: Images and classes of a small set: ten classes of twenty images, of which two validate.
SMALL = 160, 8


def resolved(name: str = "best", size: tuple[int, int] = SMALL, **given: Any) -> TrainConfig:
    options = {key.replace("__", "."): value for key, value in given.items()}
    config = with_recipe(name, {"data": "x", **options}, gpu=True)
    check_effects(config)
    return resolve(config, "folder", size)


def test_the_papers_are_the_plain_defaults() -> None:
    plain = resolve(TrainConfig(data="x"), "folder")
    assert replace(resolved("papers"), recipe=None) == plain


def test_every_setting_of_a_recipe_is_an_option_with_a_reason() -> None:
    known = flat(TrainConfig())
    for recipe in RECIPES.values():
        assert recipe.summary
        assert recipe.measured
        for name, setting in {**recipe.options, **recipe.without_gpu, **recipe.frozen}.items():
            assert name in known
            assert setting.why
            assert setting.value != known[name], f"{name} is the default anyway"
            assert all(
                any(f"{it}.".startswith(f"{other}.") for it in known) for other in setting.unless
            )


def test_a_given_option_wins_even_if_it_is_the_default() -> None:
    assert resolved().embedding_size == 512
    assert resolved(embedding_size=128).embedding_size == 128
    assert resolved(optimizer__schedule="constant").optimizer.schedule == "constant"
    assert resolved(images_per_class=4, batch_size=32).images_per_class == 4
    assert resolved(stop__max_steps=7).stop.max_steps == 7


@pytest.mark.parametrize(
    "given",
    [
        {"pool": "gap"},
        {"pool": "gemean", "loss": "c2"},
        {"loss": "ms"},
        {"ccp.enabled": True},
        {"zero_shot.balance": 0.5},
        {"zero_shot.ridge": 0.1},
        {"stop.patience": 3},
        {"optimizer.plateau_patience": 4},
        {"optimizer.restarts": [20]},
        {"freeze_backbone": True},
        {"minutes": 5.0},
        {"loss": "libc", "images_per_class": 8},
    ],
)
@pytest.mark.parametrize("name", ["best", "auto"])
def test_whatever_a_user_gives_fits_the_recipe(name: str, given: dict[str, Any]) -> None:
    config = with_recipe(name, {"data": "x", **given}, gpu=False)
    check_effects(config)
    found = flat(resolve(config, "folder", SMALL))
    assert {option: found[option] for option in given} == given


@pytest.mark.parametrize("classes", [2, 3, 5, 8, 15, 75, 11_318])
@pytest.mark.parametrize("loss", ["panchor", "ms"])
def test_a_batch_has_no_more_classes_than_there_are(loss: str, classes: int) -> None:
    config = resolved(size=(20 * classes, classes), loss=loss)
    assert config.images_per_class is not None
    assert config.batch_size % config.images_per_class == 0
    assert config.batch_size // config.images_per_class <= classes


@pytest.mark.parametrize(
    ("images", "given", "share"),
    [
        (1000, {}, 0.5),
        (1001, {}, None),
        (1000, {"optimizer__start_share": 0.0}, 0.0),
        (1000, {"ccp__enabled": True, "loss": "c2"}, None),
        (1000, {"pool": "gsp", "gsp__average_steps": 5}, None),
        (5000, {"freeze_backbone": True}, 0.5),
        (1000, {"backbone": "small_cnn"}, None),
        (1000, {"weights": "none"}, None),
    ],
)
def test_few_images_keep_half_of_the_start(
    images: int, given: dict[str, Any], share: float | None
) -> None:
    assert resolved(size=(images, 50), **given).optimizer.start_share == share
    assert resolved("papers", (images, 50)).optimizer.start_share is None


def test_steps_follow_the_images_within_bounds() -> None:
    few, some, many = (resolved(size=(count, 50)).stop for count in (100, 2000, 10**6))
    length = RECIPES["best"].length
    assert length is not None
    assert few.max_steps == length.least
    assert many.max_steps == length.most
    assert some.max_steps is not None
    assert length.least < some.max_steps < length.most
    assert some.validate_every is not None
    assert 9 <= some.max_steps / some.validate_every <= 10


def test_options_of_a_pooling_are_those_of_the_recipe_and_options_of_gsp_mean_gsp() -> None:
    assert recipe_options("best", {"pool_options": {"p": 2.0}}, gpu=True)["pool"] == "gemean"
    assert "pool" not in recipe_options("best", {"gsp.mu": 0.5}, gpu=True)  # gsp, the default


def test_without_a_gpu_auto_freezes_the_backbone_unless_it_is_to_learn() -> None:
    assert recipe_options("auto", {}, gpu=False)["freeze_backbone"]
    assert "freeze_backbone" not in recipe_options("auto", {}, gpu=True)
    assert "freeze_backbone" not in recipe_options("auto", {"hardware.compile": True}, gpu=False)
    assert not with_recipe("auto", {"freeze_backbone": False}, gpu=False).freeze_backbone


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, (320, 288)),
        ({"backbone": "resnet50_v1"}, (320, 288)),
        ({"backbone": "small_cnn"}, (None, None)),
        ({"backbone": "vit_tiny_patch16_224"}, (None, None)),
        ({"crop": 96}, (None, 96)),
        ({"init": "run"}, (None, None)),
        ({"freeze_backbone": True}, (None, None)),
    ],
)
def test_best_enlarges_photographs_unless_a_size_is_given(
    given: dict[str, Any], sizes: tuple[int | None, int | None]
) -> None:
    config = with_recipe("best", given)
    assert (config.resize, config.crop) == sizes


def test_without_a_gpu_auto_leaves_sizes_to_the_network() -> None:
    assert with_recipe("auto", {}, gpu=False).crop is None
    assert with_recipe("auto", {}, gpu=True).crop == 288


def test_an_unknown_recipe_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="recipe must be one of best, papers, auto, got 'bst'"):
        with_recipe("bst", {})


def test_a_resumed_run_keeps_its_recipe(tmp_path: Path) -> None:
    write_config(resolved(), tmp_path / "config.yaml")
    stored = read_config(tmp_path / "config.yaml")
    assert stored == resolved()
    assert merge(TrainConfig(), stored) == stored
    with pytest.raises(ConfigError, match="recipe is 'papers', but the run was begun with 'best'"):
        merge(TrainConfig(recipe="papers"), stored)


@pytest.mark.parametrize("changes", [{"recipe": "best"}, {"minutes": 3.0}])
def test_a_protocol_takes_no_recipe(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(changes))} is for `sumpool train`"):
        PROTOCOLS["fair"].configure(TrainConfig(**changes), Member(1, 0), "cub")
