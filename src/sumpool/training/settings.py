"""The constants of the published settings, and the filling in of what a user left open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from sumpool.losses import LOSSES, LossRecipe
from sumpool.models import BACKBONES, PACKAGED
from sumpool.pooling import POOLINGS, pooling_class
from sumpool.training.config import ConfigError, TrainConfig


@dataclass(frozen=True)
class DataSettings:
    """What the papers use on a data set.

    Attributes:
        prototypes: Prototypes m of GSP.
        mu: Share μ of GSP.
        eps_pair: ε of GSP with pair losses.
        eps_proxy: ε of GSP with proxy losses.
        zero_shot: Weight λ of the zero-shot loss.
        validate_every: Steps between validations.
        patience: Validations without gain that end a run.
    """

    prototypes: int = 64
    mu: float = 0.3
    eps_pair: float = 5.0
    eps_proxy: float = 0.5
    zero_shot: float = 0.1
    validate_every: int = 100
    patience: int = 15


_LARGE = DataSettings(prototypes=128, validate_every=1000, patience=10)
_COLLAGE = DataSettings(
    prototypes=128, mu=0.2, eps_pair=10.0, eps_proxy=10.0, zero_shot=0.5, validate_every=250
)
#: The settings of the fair protocol by data set; :data:`DEFAULT` holds for all others.
SETTINGS = {
    "cub": DataSettings(),
    "cars196": DataSettings(),
    "sop": _LARGE,
    "inshop": _LARGE,
    "cifar-collage": _COLLAGE,
    "cifar-foreground": _COLLAGE,
}
DEFAULT = DataSettings()
#: Learning rate of the fair protocol.
LEARNING_RATE = 1e-5


def resolve(config: TrainConfig, data_set: str) -> TrainConfig:
    """``config`` with every option that was left open filled in for ``data_set``.

    Raises:
        ConfigError: If an option is not accepted, or two contradict each other.
    """
    recipe = _check(config)
    found = SETTINGS.get(data_set, DEFAULT)
    gsp, zero_shot, optimizer, stop = config.gsp, config.zero_shot, config.optimizer, config.stop
    has_attributes = pooling_class(config.pool).has_attributes
    resolved = replace(
        config,
        gsp=replace(
            gsp,
            prototypes=_or(gsp.prototypes, found.prototypes),
            mu=_or(gsp.mu, found.mu),
            eps=_or(gsp.eps, found.eps_proxy if recipe.proxy else found.eps_pair),
        ),
        zero_shot=replace(
            zero_shot, weight=_or(zero_shot.weight, found.zero_shot if has_attributes else 0.0)
        ),
        weights=_or(config.weights, _weights(config.backbone)),
        images_per_class=_or(config.images_per_class, recipe.images_per_class),
        optimizer=replace(
            optimizer,
            lr=_or(optimizer.lr, recipe.lr(data_set) or LEARNING_RATE),
            proxy_lr_multiplier=_or(optimizer.proxy_lr_multiplier, recipe.proxy_lr_multiplier),
            warmup_epochs=_or(optimizer.warmup_epochs, recipe.warmup_epochs),
        ),
        stop=replace(
            stop,
            validate_every=_or(stop.validate_every, found.validate_every),
            patience=_or(stop.patience, found.patience),
        ),
    )
    _check_numbers(resolved, recipe)
    return resolved


T = TypeVar("T")


def _or(given: T | None, default: T) -> T:
    return default if given is None else given


def _weights(backbone: str) -> str:
    if backbone in PACKAGED:
        return "packaged"
    return "none" if backbone in BACKBONES else "timm"


def _check(config: TrainConfig) -> LossRecipe:
    if config.loss not in LOSSES:
        raise ConfigError(f"loss must be one of {', '.join(LOSSES)}, got {config.loss!r}")
    if config.pool not in POOLINGS:
        raise ConfigError(f"pool must be one of {', '.join(POOLINGS)}, got {config.pool!r}")
    if config.zero_shot.weight and not pooling_class(config.pool).has_attributes:
        raise ConfigError(
            f"zero_shot.weight is {config.zero_shot.weight:g}, but pool {config.pool} has no "
            "attributes for the zero-shot loss; average pooling with attributes is --pool gsp "
            "--gsp.mu 1"
        )
    balance = config.zero_shot.balance
    if balance is not None:
        if balance <= 0:
            raise ConfigError(f"zero_shot.balance must be positive, got {balance}")
        if not pooling_class(config.pool).has_attributes:
            raise ConfigError(f"zero_shot.balance needs attributes, which pool {config.pool} lacks")
        if config.zero_shot.weight == 0:
            raise ConfigError("zero_shot.balance sets the weight, which is given as 0")
        if config.gsp.average_steps or config.hardware.devices * config.hardware.nodes > 1:
            raise ConfigError(
                "zero_shot.balance needs prototypes in the first step, and one process: leave "
                "gsp.average_steps at 0 and hardware.devices at 1"
            )
    if config.gsp.average_steps < 0:
        raise ConfigError(f"gsp.average_steps must be at least 0, got {config.gsp.average_steps}")
    if config.gsp.average_steps and config.pool != "gsp":
        raise ConfigError(f"gsp.average_steps needs pool gsp, got {config.pool}")
    if config.fold is not None and not 1 <= config.fold <= config.folds:
        raise ConfigError(f"fold must lie in 1..{config.folds} (folds), got {config.fold}")
    if not 0 < config.validation < 1:
        raise ConfigError(f"validation must lie in (0, 1), got {config.validation}")
    return LOSSES[config.loss]


def _check_numbers(config: TrainConfig, recipe: LossRecipe) -> None:
    per_class = config.images_per_class
    assert per_class is not None
    assert config.zero_shot.weight is not None
    positive = {
        "batch_size": config.batch_size,
        "images_per_class": per_class,
        "embedding_size": config.embedding_size,
        "optimizer.lr": config.optimizer.lr,
        "stop.validate_every": config.stop.validate_every,
        "stop.patience": config.stop.patience,
        "stop.max_steps": config.stop.max_steps,
        "hardware.devices": config.hardware.devices,
        "hardware.nodes": config.hardware.nodes,
    }
    for name, value in positive.items():
        if value is not None and value <= 0:
            raise ConfigError(f"{name} must be positive, got {value}")
    if not 0 <= config.zero_shot.weight <= 1:
        raise ConfigError(f"zero_shot.weight must lie in [0, 1], got {config.zero_shot.weight}")
    if config.batch_size % per_class:
        raise ConfigError(
            f"batch_size {config.batch_size} must be a multiple of images_per_class {per_class}"
        )
    if not recipe.proxy and per_class < 2:
        raise ConfigError(
            f"images_per_class must be at least 2 with loss {config.loss}, which compares images "
            f"of a class with each other, got {per_class}"
        )
    if config.zero_shot.weight and config.batch_size // per_class < 2:
        raise ConfigError(
            f"the zero-shot loss needs at least two classes a batch: batch_size "
            f"{config.batch_size} with images_per_class {per_class} has one"
        )
