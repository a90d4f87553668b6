"""Recipes of ``sumpool train``: the options that each sets unless a user does, and why.

Imports neither torch nor the catalogs, so that ``sumpool train --help`` is quick. The numbers are
defined only here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sumpool.training.config import ConfigError, TrainConfig, with_options

#: The recipe of ``sumpool train`` and ``sumpool tune``.
DEFAULT_RECIPE = "best"
#: Number of validations in a run whose length a recipe sets.
VALIDATIONS = 10


@dataclass(frozen=True)
class Setting:
    """One option of a recipe.

    Attributes:
        value: Its value.
        why: The reason, in a sentence.
        unless: Options any of which, if a user gives it, leaves this one at its usual default: they
            exclude each other, or it belongs to what was replaced.
        backbones: Networks it applies to; empty is all.
    """

    value: Any
    why: str
    unless: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()


@dataclass(frozen=True)
class Length:
    """Length of a run: passes over the training images, within bounds.

    Attributes:
        epochs: Number of passes.
        least: Minimum number of steps.
        most: Maximum number of steps.
    """

    epochs: float
    least: int
    most: int

    def steps(self, images: int, batch_size: int) -> int:
        """Return the number of steps for ``images`` training images.

        Example:
            >>> Length(epochs=16, least=50, most=3000).steps(images=5864, batch_size=64)
            1466
        """
        return min(max(math.ceil(self.epochs * images / batch_size), self.least), self.most)


@dataclass(frozen=True)
class Recipe:
    """Options that go together.

    Attributes:
        summary: One-line description.
        measured: Source of its numbers.
        options: Its settings by the dotted name of the option.
        without_gpu: Settings added if there is no GPU.
        frozen: Settings added or replaced with a frozen backbone.
        length: Length of the run, if ``stop.max_steps`` is null; None leaves it to patience.
        frozen_length: The same with a frozen backbone.
        few: Number of training images up to which ``optimizer.start_share`` is 0.5 if null; with a
            frozen backbone it always is.
        pair_rate: Learning rate with losses without proxies.
        proxy_rate: Learning rate with proxy losses.
    """

    summary: str
    measured: str
    options: Mapping[str, Setting] = field(default_factory=dict)
    without_gpu: Mapping[str, Setting] = field(default_factory=dict)
    frozen: Mapping[str, Setting] = field(default_factory=dict)
    length: Length | None = None
    frozen_length: Length | None = None
    few: int = 0
    pair_rate: float = 1e-5
    proxy_rate: float = 1e-5


#: Networks for photographs of any size.
_FOR_PHOTOS = (
    *("tf_efficientnet_lite0", "tf_efficientnet_lite1", "tf_efficientnet_lite2"),
    *("resnet50_v1", "bn_inception"),
)
#: Larger images than the network's default, unless a user sets the size or features are stored.
_LARGE = partial(
    Setting,
    why="2.3 points of MAP@R on validation classes of CUB, more than any pooling",
    unless=("resize", "crop", "init", "freeze_backbone"),
    backbones=_FOR_PHOTOS,
)
#: Options with which validations determine the end of a run, or its rates.
_BY_VALIDATION = ("ccp.enabled", "optimizer.restarts")
#: Options that belong to a pooling that the recipe would replace.
_OTHER_POOLING = ("gsp", "zero_shot", "ccp.enabled")
_BEST = Recipe(
    summary="what this package knows to be best",
    measured="schedule, average of the weights and rate of pair losses: CUB with C2 and 128 "
    "dimensions, validation classes (docs/results/photographs-tuning-h200 and "
    "photographs-screening-h200); size of images, pooling, length, loss and rate of proxy losses: "
    "CUB with 512 dimensions, validation classes (docs/results/recipe-h200); embedding, batch and "
    "optimizer: published tables",
    options={
        "loss": Setting("panchor", "first of four on validation classes of CUB", ("ccp.enabled",)),
        "resize": _LARGE(320),
        "crop": _LARGE(288),
        "pool": Setting(
            "gemean",
            "level with gsp-keys, which starts as this and learns to select, on photographs with "
            "EfficientNet-Lite0, and ahead of it in precision at 1 (docs/results/photographs-h200)",
            _OTHER_POOLING,
        ),
        "embedding_size": Setting(512, "the size of most published tables"),
        "batch_size": Setting(64, "proxies are compared with more images at a time"),
        "zero_shot.weight": Setting(0.0, "it gains nothing on photographs", ("zero_shot",)),
        "optimizer.name": Setting("adamw", "weight decay apart from the gradient"),
        "optimizer.schedule": Setting(
            "cosine",
            "rates that fall to zero leave no step to select",
            (*_BY_VALIDATION, "optimizer.plateau_patience"),
        ),
        "optimizer.ema": Setting(0.999, "averaged weights vary less", ("ccp.enabled",)),
        "stop.keep": Setting(
            "last", "few validation classes select by chance", (*_BY_VALIDATION, "stop.patience")
        ),
    },
    length=Length(epochs=16, least=50, most=3000),
    few=1000,
    frozen={
        "pool": Setting(
            "gsp-keys",
            "level with the power mean on photographs, ahead of it with clutter around the object "
            "(docs/results/minutes-cpu and clutter-cpu)",
            _OTHER_POOLING,
        ),
        "map_init": Setting(
            "orthogonal", "it keeps more of what the network knows", ("pool", "init")
        ),
        "frozen_views": Setting(2, "on a CPU most of the time goes into views"),
        "learned_blocks": Setting(
            2,
            "14 % of the network, and a point of P@1 more (docs/results/minutes-cpu)",
            ("backbone", "backbone_options", "init"),
        ),
        "optimizer.lr": Setting(
            3e-4, "with half of the start; alone it forgets (docs/results/minutes-cpu)"
        ),
    },
    frozen_length=Length(epochs=10, least=30, most=1000),
    pair_rate=3e-5,
    proxy_rate=1e-4,
)
#: Options that imply a trained backbone.
_LEARNS = (
    *("optimizer.warmup_epochs", "freeze_batch_norm_affine"),
    *("hardware.compile", "hardware.cuda_graph", "hardware.cuda_step"),
)
#: Recipes by name; a configuration whose recipe is ``None`` has its options as given.
RECIPES: Mapping[str, Recipe] = {
    "best": _BEST,
    "papers": Recipe(
        summary="the fair protocol of the papers",
        measured="the papers (docs/protocols.md, docs/losses.md)",
    ),
    "auto": replace(
        _BEST,
        summary="best; without a GPU on frozen features",
        without_gpu={
            "freeze_backbone": Setting(True, "a step takes milliseconds, not seconds", _LEARNS)
        },
    ),
}


def recipe_options(name: str, given: Mapping[str, Any], *, gpu: bool = True) -> dict[str, Any]:
    """Return the options that a recipe sets in addition to those that a user gives.

    Args:
        name: A key of :data:`RECIPES`.
        given: The user's options by dotted name.
        gpu: Whether there is a GPU.

    Raises:
        ConfigError: If there is no such recipe.

    Example:
        >>> recipe_options("best", {})["optimizer.schedule"]
        'cosine'
        >>> recipe_options("papers", {})
        {'recipe': 'papers'}
    """
    if name not in RECIPES:
        raise ConfigError(f"recipe must be one of {', '.join(RECIPES)}, got {name!r}")
    recipe = RECIPES[name]
    settings = {**recipe.options, **({} if gpu else recipe.without_gpu)}
    applied = _applied(settings, given)
    if {**applied, **given}.get("freeze_backbone"):
        applied = _applied({**settings, **recipe.frozen}, {**given, "freeze_backbone": True})
    return {"recipe": name, **applied}


def with_recipe(name: str, given: Mapping[str, Any], *, gpu: bool | None = None) -> TrainConfig:
    """Build a configuration from a recipe and the options that a user gives, which take precedence.

    Args:
        name: A key of :data:`RECIPES`.
        given: The user's options by dotted name.
        gpu: Whether there is a GPU; None detects it.

    Example:
        >>> config = with_recipe("best", {"data": "photos", "embedding_size": 128})
        >>> config.embedding_size, config.loss
        (128, 'panchor')
    """
    found = RECIPES.get(name)
    if gpu is None:
        gpu = found is None or not found.without_gpu or has_gpu(given.get("hardware.accelerator"))
    return with_options(TrainConfig(), {**recipe_options(name, given, gpu=gpu), **given})


def has_gpu(accelerator: str | None) -> bool:
    """Whether training with ``hardware.accelerator`` set to ``accelerator`` uses a GPU."""
    # Imported here: torch takes seconds, which `--help` need not wait for.
    import torch

    return accelerator != "cpu" and torch.cuda.is_available()


def data_options(
    config: TrainConfig,
    images: int,
    classes: int,
    *,
    proxy: bool,
    images_per_class: int,
    pretrained: bool,
) -> dict[str, Any]:
    """Return the values that the recipe of ``config`` has for null options, for data of this size.

    Args:
        config: The options.
        images: Number of training images.
        classes: Number of their classes.
        proxy: Whether the loss has proxies.
        images_per_class: Images per class in a batch that the loss needs; increased if there are
            fewer classes than a batch needs.
        pretrained: Whether the network is pretrained.
    """
    recipe = RECIPES.get(config.recipe or "papers", RECIPES["papers"])
    length = recipe.frozen_length if config.freeze_backbone else recipe.length
    if length is None:
        return {}
    options: dict[str, Any] = {
        "optimizer.lr": recipe.proxy_rate if proxy else recipe.pair_rate,
        "images_per_class": _per_class(config.batch_size, classes, images_per_class),
    }
    steps = config.stop.max_steps or length.steps(images, config.batch_size)
    keeps = pretrained and not (config.ccp.enabled or config.gsp.average_steps)
    if keeps and (images <= recipe.few or config.freeze_backbone):
        options["optimizer.start_share"] = 0.5
    if has_length(config):
        options |= {"stop.max_steps": steps, "stop.validate_every": math.ceil(steps / VALIDATIONS)}
    return options


def has_length(config: TrainConfig) -> bool:
    """Whether the last step of a run is known from the start."""
    return config.optimizer.schedule == "cosine" or config.stop.keep == "last"


def _applied(settings: Mapping[str, Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    used = [name for name, value in given.items() if value]
    backbone = given.get("backbone", TrainConfig().backbone)
    return {
        name: setting.value
        for name, setting in settings.items()
        if (not setting.backbones or backbone in setting.backbones)
        and not any(f"{it}.".startswith(f"{other}.") for it in used for other in setting.unless)
    }


def _per_class(batch_size: int, classes: int, least: int) -> int:
    fitting = (
        count
        for count in range(least, batch_size + 1)
        if batch_size % count == 0 and batch_size // count <= classes
    )
    return next(fitting, least)
