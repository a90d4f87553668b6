"""The constants of the published settings, and the filling in of what a user left open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from sumpool.centers import REGULARIZERS
from sumpool.losses import LOSSES, WITHOUT_NORMALIZATION, LossRecipe
from sumpool.models import BACKBONES, PACKAGED
from sumpool.pooling import POOLINGS, pooling_class
from sumpool.training.config import ChanceConfig, ConfigError, GspConfig, TrainConfig


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
        proxies: Proxies of a class with chance-constrained proxies.
        pool: Images of a class that those are picked among.
    """

    prototypes: int = 64
    mu: float = 0.3
    eps_pair: float = 5.0
    eps_proxy: float = 0.5
    zero_shot: float = 0.1
    validate_every: int = 100
    patience: int = 15
    proxies: int = 8
    pool: int = 12


_LARGE = DataSettings(prototypes=128, validate_every=1000, patience=10, proxies=4, pool=7)
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
#: Validations without gain that end a run with chance-constrained proxies.
CCP_PATIENCE = 60
#: With chance-constrained proxies there are so many times as many validations.
CCP_VALIDATIONS = 4
#: Losses that compare images with proxies in it.
CCP_LOSSES = ("c1", "c2", "ms", "triplet")
#: Learning rate of the fair protocol.
LEARNING_RATE = 1e-5


def check_effects(config: TrainConfig) -> None:
    """Refuse options that a user has set and that would have no effect.

    It is for options as they were given: in a resolved configuration all are set.

    Raises:
        ConfigError: Naming them, and what they would need; or as :func:`check_options`.
    """
    check_options(config)
    defaults, pool = TrainConfig(), pooling_class(config.pool)
    own, plain = config.zero_shot, defaults.zero_shot
    settings = replace(own, weight=plain.weight, balance=plain.balance)
    proxies = LOSSES[config.loss].proxy or config.ccp
    optimizer = config.optimizer
    for ignored, what in (
        (config.gsp != defaults.gsp and not pool.has_attributes, f"gsp.… with pool {config.pool}"),
        (settings != plain and not pool.has_attributes, f"zero_shot.… with pool {config.pool}"),
        (settings != plain and own.weight == 0, "zero_shot.… with zero_shot.weight 0"),
        (
            optimizer.plateau_factor != defaults.optimizer.plateau_factor
            and optimizer.plateau_patience is None,
            "optimizer.plateau_factor without optimizer.plateau_patience",
        ),
        (
            optimizer.proxy_lr_multiplier is not None and not proxies,
            f"optimizer.proxy_lr_multiplier with loss {config.loss}, which has no proxies",
        ),
    ):
        if ignored:
            raise ConfigError(f"options without effect: {what}")


def resolve(config: TrainConfig, data_set: str) -> TrainConfig:
    """``config`` with every option that was left open filled in for ``data_set``.

    Raises:
        ConfigError: If an option is not accepted, or two contradict each other.
    """
    recipe = check_options(config)
    found = SETTINGS.get(data_set, DEFAULT)
    gsp, zero_shot, optimizer, stop = config.gsp, config.zero_shot, config.optimizer, config.stop
    has_attributes = pooling_class(config.pool).has_attributes
    eps = found.eps_proxy if recipe.proxy else found.eps_pair
    patience = CCP_PATIENCE if config.ccp else found.patience
    resolved = replace(
        config,
        gsp=replace(
            gsp,
            prototypes=_or(gsp.prototypes, found.prototypes),
            mu=_or(gsp.mu, found.mu),
            eps=None if gsp.spread is not None else _or(gsp.eps, eps),
        ),
        zero_shot=replace(
            zero_shot, weight=_or(zero_shot.weight, found.zero_shot if has_attributes else 0.0)
        ),
        weights=_or(config.weights, _weights(config.backbone)),
        normalize=_or(config.normalize, "ball" if config.ccp else "l2"),
        chance=_resolve_chance(config, found, data_set),
        images_per_class=_or(config.images_per_class, recipe.images_per_class),
        optimizer=replace(
            optimizer,
            lr=_or(optimizer.lr, recipe.lr(data_set) or LEARNING_RATE),
            proxy_lr_multiplier=_or(optimizer.proxy_lr_multiplier, recipe.proxy_lr_multiplier),
            warmup_epochs=_or(optimizer.warmup_epochs, recipe.warmup_epochs),
        ),
        stop=replace(
            stop,
            validate_every=_or(stop.validate_every, _validate_every(config, found)),
            patience=None if stop.keep == "last" else _or(stop.patience, patience),
        ),
    )
    _check_numbers(resolved, recipe)
    return resolved


def _validate_every(config: TrainConfig, found: DataSettings) -> int:
    return found.validate_every // CCP_VALIDATIONS if config.ccp else found.validate_every


def _resolve_chance(config: TrainConfig, found: DataSettings, data_set: str) -> ChanceConfig:
    chance = config.chance
    if not config.ccp:
        return chance
    beta = alpha = 0.5
    if config.loss == "c2":
        # The generalised contrastive loss has margins β − α and β + α.
        constants = {**LOSSES["c2"].constants(data_set), **config.loss_options}
        low, high = float(constants["pos_margin"]), float(constants["neg_margin"])
        beta, alpha = (low + high) / 2, (high - low) / 2
    proxies = _or(chance.proxies, found.proxies)
    return replace(
        chance,
        proxies=proxies,
        pool=_or(chance.pool, max(found.pool, proxies)),
        beta=_or(chance.beta, beta),
        alpha=_or(chance.alpha, alpha),
    )


T = TypeVar("T")


def _or(given: T | None, default: T) -> T:
    return default if given is None else given


def _weights(backbone: str) -> str:
    if backbone in PACKAGED:
        return "packaged"
    return "none" if backbone in BACKBONES else "timm"


def check_options(config: TrainConfig) -> LossRecipe:
    """Refuse what no data can make right, before anything is opened; gives what the loss needs.

    Raises:
        ConfigError: If an option is not accepted, or two contradict each other.
    """
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
        if config.ccp:
            raise ConfigError(
                "zero_shot.balance compares losses on the first batch, before there are proxies: "
                "leave one of it and ccp out"
            )
    _check_centers(config)
    if config.gsp.average_steps < 0:
        raise ConfigError(f"gsp.average_steps must be at least 0, got {config.gsp.average_steps}")
    _check_gsp(config)
    for name, count, least in (
        ("seed", config.seed, 0),
        ("folds", config.folds, 2),
        ("hardware.devices", config.hardware.devices, 1),
        ("hardware.nodes", config.hardware.nodes, 1),
        ("hardware.workers", config.hardware.workers, 0),
    ):
        if count is not None and count < least:
            raise ConfigError(f"{name} must be at least {least}, got {count}")
    if config.fold is not None and not 1 <= config.fold <= config.folds:
        raise ConfigError(f"fold must lie in 1..{config.folds} (folds), got {config.fold}")
    if not 0 < config.validation < 1:
        raise ConfigError(f"validation must lie in (0, 1), got {config.validation}")
    area = config.crop_area
    if area is not None and not (len(area) == 2 and 0 < area[0] <= area[1] <= 1):
        raise ConfigError(f"crop_area must be two numbers in (0, 1], in order, got {area}")
    _check_selection(config)
    _check_end(config)
    return LOSSES[config.loss]


def _check_selection(config: TrainConfig) -> None:
    choices = ("validation", "test")
    if config.selection not in choices:
        raise ConfigError(
            f"selection must be one of {', '.join(choices)}, got {config.selection!r}"
        )
    if config.selection == "test" and not config.test:
        raise ConfigError("selection test reads the test set, which test false keeps closed")
    defaults = TrainConfig()
    for name in ("fold", "folds", "validation"):
        value = getattr(config, name)
        if config.selection == "test" and value != getattr(defaults, name):
            raise ConfigError(
                f"{name} is {value}, but with selection test all training classes are trained on: "
                f"leave {name} out, or choose selection validation"
            )


def _check_gsp(config: TrainConfig) -> None:
    gsp = config.gsp
    if gsp.init not in ("local", "image"):
        raise ConfigError(f"gsp.init must be one of local, image, got {gsp.init!r}")
    for name in ("average_steps", "spread", "init"):
        if getattr(gsp, name) != getattr(GspConfig(), name) and config.pool != "gsp":
            raise ConfigError(f"gsp.{name} needs pool gsp, got {config.pool}")
    if gsp.spread is None:
        return
    if not 0 < gsp.spread < 1:
        raise ConfigError(f"gsp.spread must lie in (0, 1), got {gsp.spread}")
    if gsp.eps is not None or gsp.mu == 1:
        other = "gsp.mu 1 makes weights equal" if gsp.eps is None else "gsp.eps is given as well"
        raise ConfigError(f"gsp.spread sets gsp.eps, but {other}: leave one of them out")


def _check_end(config: TrainConfig) -> None:
    optimizer, stop = config.optimizer, config.stop
    for name, given, choices in (
        ("optimizer.schedule", optimizer.schedule, ("constant", "cosine")),
        ("stop.keep", stop.keep, ("best", "last")),
    ):
        if given not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {given!r}")
    cosine, last = optimizer.schedule == "cosine", stop.keep == "last"
    if stop.max_steps is None and (cosine or last):
        name = "optimizer.schedule cosine" if cosine else "stop.keep last"
        raise ConfigError(f"{name} needs stop.max_steps, the step at which training ends")
    if cosine and optimizer.plateau_patience is not None:
        raise ConfigError(
            "optimizer.schedule cosine sets the rates, and so does optimizer.plateau_patience: "
            "leave one of them out"
        )
    if last and stop.patience is not None:
        raise ConfigError(
            f"stop.patience is {stop.patience}, but stop.keep last trains to stop.max_steps: leave "
            "one of them out"
        )
    if optimizer.ema is not None and not 0 < optimizer.ema < 1:
        raise ConfigError(f"optimizer.ema must lie in (0, 1), got {optimizer.ema}")
    if config.ccp and (last or optimizer.ema is not None):
        name = "stop.keep last" if last else "optimizer.ema"
        raise ConfigError(
            f"{name} and ccp exclude each other: problems of ccp end with weights of their own"
        )


def _check_centers(config: TrainConfig) -> None:
    recipe, defaults = LOSSES[config.loss], TrainConfig()
    if config.ccp and config.loss not in CCP_LOSSES:
        raise ConfigError(f"ccp needs a loss out of {', '.join(CCP_LOSSES)}, got {config.loss}")
    if not config.ccp and config.chance != defaults.chance:
        raise ConfigError("options chance.… have no effect without --ccp")
    if config.normalize == "ball" and config.loss not in WITHOUT_NORMALIZATION:
        raise ConfigError(
            f"normalize must be l2 with loss {config.loss}, whose formula has unit vectors"
        )
    if config.center_reg is None:
        if config.center != defaults.center:
            raise ConfigError("options center.… have no effect without --center-reg")
        return
    if config.center_reg not in REGULARIZERS:
        raise ConfigError(
            f"center_reg must be one of {', '.join(REGULARIZERS)}, got {config.center_reg!r}"
        )
    if not (recipe.proxy or config.ccp):
        raise ConfigError(
            f"center_reg needs a loss with proxies or --ccp; loss {config.loss} has none"
        )


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
        "chance.proxies": config.chance.proxies,
        "chance.patience": config.chance.patience,
        "chance.problems": config.chance.problems,
        "chance.alpha": config.chance.alpha,
        "center.subset": config.center.subset,
        "gsp.prototypes": config.gsp.prototypes,
        "gsp.eps": config.gsp.eps,
        "gsp.lr_multiplier": config.gsp.lr_multiplier,
        "zero_shot.ridge": config.zero_shot.ridge,
        "zero_shot.scale": config.zero_shot.scale,
        "zero_shot.lr_multiplier": config.zero_shot.lr_multiplier,
    }
    for name, value in positive.items():
        if value is not None and value <= 0:
            raise ConfigError(f"{name} must be positive, got {value}")
    if not 0 <= config.zero_shot.weight <= 1:
        raise ConfigError(f"zero_shot.weight must lie in [0, 1], got {config.zero_shot.weight}")
    mu = config.gsp.mu
    if mu is not None and not 0 < mu <= 1:
        raise ConfigError(f"gsp.mu must lie in (0, 1], got {mu}")
    begin, end = config.zero_shot.begin, config.zero_shot.end
    if begin < 0 or (end is not None and end <= begin):
        raise ConfigError(
            f"zero_shot.begin must be at least 0 and before zero_shot.end, got {begin} and {end}"
        )
    for name, amount in (
        ("optimizer.warmup_epochs", config.optimizer.warmup_epochs or 0.0),
        ("chance.pull", config.chance.pull),
        ("chance.batch_weight", config.chance.batch_weight),
        ("center.weight", config.center.weight),
    ):
        if amount < 0:
            raise ConfigError(f"{name} must be at least 0, got {amount}")
    proxies, pool = config.chance.proxies, config.chance.pool
    if proxies is not None and pool is not None and pool < proxies:
        raise ConfigError(
            f"chance.pool must be at least chance.proxies = {proxies}, which are picked among its "
            f"images, got {pool}"
        )
    if config.batch_size % per_class:
        raise ConfigError(
            f"batch_size {config.batch_size} must be a multiple of images_per_class {per_class}"
        )
    if not recipe.proxy and not config.ccp and per_class < 2:
        raise ConfigError(
            f"images_per_class must be at least 2 with loss {config.loss}, which compares images "
            f"of a class with each other, got {per_class}"
        )
    if config.zero_shot.weight and config.batch_size // per_class < 2:
        raise ConfigError(
            f"the zero-shot loss needs at least two classes a batch: batch_size "
            f"{config.batch_size} with images_per_class {per_class} has one"
        )
