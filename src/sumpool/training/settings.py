"""Published settings, accepted values of options, and values for options left open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sumpool.losses import LOSSES, LossRecipe
from sumpool.losses.constants import check_constant
from sumpool.models import BACKBONES, PACKAGED
from sumpool.pooling import POOLINGS, pooling_class
from sumpool.pooling.keyed_sum import EPS, QUERIES
from sumpool.pooling.sum_parts import PARTS
from sumpool.training.config import ConfigError, TrainConfig, flat, with_options
from sumpool.training.values.combinations import (
    check_batches,
    check_centers,
    check_end,
    has_running_centers,
)
from sumpool.training.values.frozen import check_frozen, frozen_defaults
from sumpool.training.values.gsp import GSP_VALUES, check_gsp
from sumpool.training.values.limits import check_limits
from sumpool.training.values.recipes import data_options


@dataclass(frozen=True)
class DataSettings:
    """Settings of the papers for a data set.

    Attributes:
        prototypes: Prototypes m of GSP.
        mu: Share μ of GSP.
        eps_pair: ε of GSP with pair losses.
        eps_proxy: ε of GSP with proxy losses.
        zero_shot: Weight λ of the zero-shot loss.
        validate_every: Steps between validations.
        patience: Validations without improvement that end a run.
        proxies: Chance-constrained proxies per class.
        candidates: Images per class from which these are picked.
    """

    prototypes: int = 64
    mu: float = 0.3
    eps_pair: float = 5.0
    eps_proxy: float = 0.5
    zero_shot: float = 0.1
    validate_every: int = 100
    patience: int = 15
    proxies: int = 8
    candidates: int = 12


_LARGE = DataSettings(prototypes=128, validate_every=1000, patience=10, proxies=4, candidates=7)
_COLLAGE = DataSettings(
    prototypes=128, mu=0.2, eps_pair=10.0, eps_proxy=10.0, zero_shot=0.5, validate_every=250
)
#: Settings of the fair protocol by data set; :data:`DEFAULT` applies to all others.
SETTINGS = {
    "cub": DataSettings(),
    "cars196": DataSettings(),
    "sop": _LARGE,
    "inshop": _LARGE,
    "cifar-collage": _COLLAGE,
    "cifar-foreground": _COLLAGE,
}
DEFAULT = DataSettings()
#: Validations without improvement that end a run with chance-constrained proxies.
CCP_PATIENCE = 60
#: Factor by which validations are more frequent with chance-constrained proxies.
CCP_VALIDATIONS = 4
#: Number of prototypes of poolings with a default of their own.
PROTOTYPES = {"gsp-keys": QUERIES, "gsp-parts": PARTS}
#: Learning rate of the fair protocol.
LEARNING_RATE = 1e-5
#: Accepted values of options with a few choices.
VALUES: Mapping[str, Collection[str]] = {
    "loss": LOSSES,
    "pool": POOLINGS,
    "selection": ("validation", "test"),
    **GSP_VALUES,
    "optimizer.name": ("adam", "adamw", "radam"),
    "optimizer.schedule": ("constant", "cosine"),
    "stop.keep": ("best", "last"),
}


def check_effects(config: TrainConfig) -> None:
    """Refuse options that a user has set and that would have no effect.

    For options as given by the user: in a resolved configuration all are set.

    Raises:
        ConfigError: If there is such an option, or as in :func:`check_options`.
    """
    check_options(config)
    for prefix, why in _idle(config):
        options = f"{prefix}…" if prefix.endswith(".") else prefix
        raise ConfigError(f"options without effect: {options} {why}")


#: Options that decide whether others have an effect.
DECISIVE = ("pool", "loss", "ccp.enabled", "zero_shot.weight", "optimizer.plateau_patience")


def without_idle(config: TrainConfig) -> TrainConfig:
    """Return ``config`` with the options that :func:`check_effects` refuses at their defaults."""
    defaults = flat(TrainConfig())
    for prefix, _ in _idle(config):
        config = with_options(
            config,
            {
                name: value
                for name, value in defaults.items()
                if name.startswith(prefix) and name not in ("zero_shot.weight", "zero_shot.balance")
            },
        )
    return config


def _idle(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Yield the prefix of options that are set without effect, and the reason."""
    defaults, pool = TrainConfig(), pooling_class(config.pool)
    own, plain = config.zero_shot, defaults.zero_shot
    settings = replace(own, weight=plain.weight, balance=plain.balance)
    # Earlier runs without the loss stored the reduction sum, which was the default.
    idle = settings not in (plain, replace(plain, reduction="sum"))
    recipe = LOSSES[config.loss]
    proxies = recipe.proxy or recipe.proxy_lr_multiplier != 1 or config.ccp.enabled
    optimizer = config.optimizer
    with_pool = f"with pool {config.pool}"
    for ignored, prefix, why in (
        (config.gsp != defaults.gsp and not pool.has_attributes, "gsp.", with_pool),
        (idle and not pool.has_attributes, "zero_shot.", with_pool),
        (idle and own.weight == 0, "zero_shot.", "with zero_shot.weight 0"),
        (
            optimizer.plateau_factor != defaults.optimizer.plateau_factor
            and optimizer.plateau_patience is None,
            "optimizer.plateau_factor",
            "without optimizer.plateau_patience",
        ),
        (
            optimizer.proxy_lr_multiplier is not None and not proxies,
            "optimizer.proxy_lr_multiplier",
            f"with loss {config.loss}, which has no proxies",
        ),
    ):
        if ignored:
            yield prefix, why


def resolve(config: TrainConfig, data_set: str, size: tuple[int, int] | None = None) -> TrainConfig:
    """Fill in every option that ``config`` leaves open, for ``data_set``.

    Args:
        config: The options.
        data_set: Format of the data.
        size: Numbers of training images and classes, which recipes use; None if unknown.

    Raises:
        ConfigError: If a value is not accepted, or two options contradict each other.
    """
    check_options(config)
    recipe = LOSSES[config.loss]
    found, ccp = SETTINGS.get(data_set, DEFAULT), config.ccp.enabled
    has_attributes = pooling_class(config.pool).has_attributes
    eps = found.eps_proxy if recipe.proxy else found.eps_pair
    eps = EPS if config.pool == "gsp-keys" else eps
    patience = CCP_PATIENCE if ccp else found.patience
    defaults: dict[str, Any] = {
        "gsp.prototypes": PROTOTYPES.get(config.pool, found.prototypes),
        "gsp.mu": found.mu,
        "gsp.eps": None if config.gsp.spread is not None else eps,
        "zero_shot.weight": found.zero_shot if has_attributes else 0.0,
        "weights": _weights(config.backbone),
        "normalize": "ball" if ccp else "l2",
        "images_per_class": recipe.images_per_class,
        "optimizer.lr": recipe.lr(data_set) or LEARNING_RATE,
        "optimizer.proxy_lr_multiplier": recipe.proxy_lr_multiplier,
        "optimizer.warmup_epochs": recipe.warmup_epochs,
        "stop.validate_every": found.validate_every // (CCP_VALIDATIONS if ccp else 1),
        "stop.patience": None if config.stop.keep == "last" else patience,
        **({"center.momentum": 0.9} if has_running_centers(config) else {}),
        **(_ccp_defaults(config, found, data_set) if ccp else {}),
        **_recipe_options(config, recipe, size),
        **frozen_defaults(config),
    }
    given = flat(config)
    left_open = {name: value for name, value in defaults.items() if given[name] is None}
    resolved = with_options(config, left_open)
    if resolved.zero_shot.weight and resolved.zero_shot.reduction is None:
        resolved = with_options(resolved, {"zero_shot.reduction": "mean"})
    check_limits(flat(resolved))
    check_batches(resolved, recipe)
    return resolved


def _recipe_options(
    config: TrainConfig, loss: LossRecipe, size: tuple[int, int] | None
) -> dict[str, Any]:
    if size is None:
        return {}
    weights = config.weights or _weights(config.backbone)
    return data_options(
        config,
        *size,
        proxy=loss.proxy,
        images_per_class=loss.images_per_class,
        pretrained=weights != "none" or config.init is not None,
    )


def _ccp_defaults(config: TrainConfig, found: DataSettings, data_set: str) -> dict[str, Any]:
    beta = alpha = 0.5
    if config.loss == "c2":
        # The generalized contrastive loss has margins β − α and β + α.
        constants = {**LOSSES["c2"].constants(data_set), **config.loss_options}
        try:
            for name in ("pos_margin", "neg_margin"):
                check_constant("c2", name, constants[name])
        except ValueError as error:
            raise ConfigError(f"loss c2 cannot be built: {error}") from error
        low, high = float(constants["pos_margin"]), float(constants["neg_margin"])
        beta, alpha = (low + high) / 2, (high - low) / 2
        if alpha <= 0 and config.ccp.alpha is None:
            raise ConfigError(
                f"with ccp, neg_margin of c2 must exceed pos_margin {low}, got {high}"
            )
    return {
        "ccp.proxies": found.proxies,
        "ccp.candidates": max(found.candidates, config.ccp.proxies or found.proxies),
        "ccp.solution": "last",
        "ccp.beta": beta,
        "ccp.alpha": alpha,
    }


def _weights(backbone: str) -> str:
    if backbone in PACKAGED:
        return "packaged"
    return "none" if backbone in BACKBONES else "timm"


def check_options(config: TrainConfig) -> None:
    """Refuse options that are wrong for any data, before it is opened.

    Raises:
        ConfigError: If a value is not accepted, or two options contradict each other.
    """
    options = flat(config)
    for name, choices in VALUES.items():
        if options[name] not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {options[name]!r}")
    check_limits(options)
    _check_zero_shot(config)
    check_centers(config)
    check_gsp(config, pooling_class(config.pool).has_attributes)
    check_end(config)
    check_frozen(config)
    area = config.crop_area
    if area is not None and not (len(area) == 2 and 0 < area[0] <= area[1] <= 1):
        raise ConfigError(f"crop_area must be two numbers in (0, 1], in order, got {area}")
    if config.selection == "test" and not config.test:
        raise ConfigError("selection test needs the test set, which test false leaves closed")
    if config.cache_dir is not None and config.cache == "none" and not config.freeze_backbone:
        raise ConfigError("cache_dir needs cache ram or gpu, or freeze_backbone, got cache none")
    if config.fold is not None and not 1 <= config.fold <= config.folds:
        raise ConfigError(f"fold must lie in 1..{config.folds} (folds), got {config.fold}")
    defaults = TrainConfig()
    for name in ("fold", "folds", "validation") if config.selection == "test" else ():
        value = getattr(config, name)
        if value != getattr(defaults, name):
            raise ConfigError(
                f"{name} is {value}, but with selection test all training classes are trained on: "
                f"leave {name} out, or choose selection validation"
            )


def _check_zero_shot(config: TrainConfig) -> None:
    weight, balance = config.zero_shot.weight, config.zero_shot.balance
    has_attributes = pooling_class(config.pool).has_attributes
    if weight and not has_attributes:
        raise ConfigError(
            f"zero_shot.weight is {weight:g}, but pool {config.pool} has no attributes for the "
            "zero-shot loss; average pooling with attributes is --pool gsp --gsp.mu 1"
        )
    begin, end = config.zero_shot.begin, config.zero_shot.end
    if begin < 0 or (end is not None and end <= begin):
        raise ConfigError(
            f"zero_shot.begin must be at least 0 and before zero_shot.end, got {begin} and {end}"
        )
    if balance is None:
        return
    for wrong, why in (
        (not has_attributes, f"needs attributes, which pool {config.pool} lacks"),
        (weight == 0, "sets the weight, which is given as 0"),
        (
            config.gsp.average_steps or config.hardware.devices * config.hardware.nodes > 1,
            "needs prototypes in the first step, and one process: leave gsp.average_steps at 0 "
            "and hardware.devices at 1",
        ),
        (
            config.ccp.enabled,
            "compares losses on the first batch, before there are proxies: leave it or ccp out",
        ),
    ):
        if wrong:
            raise ConfigError(f"zero_shot.balance {why}")
