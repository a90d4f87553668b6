"""Checks for options that contradict each other or have no effect together."""

from __future__ import annotations

from dataclasses import replace

from sumpool.centers import REGULARIZERS
from sumpool.losses import LOSSES, WITHOUT_NORMALIZATION, LossRecipe
from sumpool.training.config import ConfigError, TrainConfig
from sumpool.training.options import OptimizerConfig

#: Losses that can compare images with chance-constrained proxies.
CCP_LOSSES = ("c1", "c2", "ms", "triplet")


def check_end(config: TrainConfig) -> None:
    """Refuse contradictory options for the end of training and its rates."""
    optimizer, stop = config.optimizer, config.stop
    cosine, last = optimizer.schedule == "cosine", stop.keep == "last"
    ending = "optimizer.schedule cosine" if cosine else "stop.keep last"
    averages = {"ema": optimizer.ema is not None, "start_share": bool(optimizer.start_share)}
    averaged = [f"optimizer.{name}" for name, given in averages.items() if given]
    kept = "stop.keep last" if last else " and ".join(averaged)
    for wrong, why in (
        (
            stop.max_steps is None
            and (cosine or last)
            and config.minutes is None
            and config.recipe in (None, "papers"),
            f"{ending} needs stop.max_steps or minutes: where training ends",
        ),
        (
            cosine and optimizer.plateau_patience is not None,
            "optimizer.schedule cosine sets the rates, and so does optimizer.plateau_patience: "
            "leave one of them out",
        ),
        (
            bool(optimizer.restarts) and (cosine or last or config.ccp.enabled),
            "optimizer.restarts goes back to the best model and sets the rates: leave it out with "
            "optimizer.schedule cosine, stop.keep last and ccp",
        ),
        (
            optimizer.restart_factor != OptimizerConfig.restart_factor and not optimizer.restarts,
            "optimizer.restart_factor has no effect without optimizer.restarts",
        ),
        (
            any(step < 1 for step in optimizer.restarts),
            f"optimizer.restarts must be steps of at least 1, got {optimizer.restarts}",
        ),
        (
            last and stop.patience is not None,
            f"stop.patience is {stop.patience}, but stop.keep last trains to stop.max_steps: leave "
            "one of them out",
        ),
        (
            config.ccp.enabled and (last or bool(averaged)),
            f"{kept} and ccp exclude each other: problems of ccp end with weights of their own",
        ),
        (
            averages["start_share"] and config.gsp.average_steps > 0,
            "optimizer.start_share and gsp.average_steps exclude each other: there are no "
            "prototypes before training",
        ),
    ):
        if wrong:
            raise ConfigError(why)


def check_centers(config: TrainConfig) -> None:
    """Refuse options for proxies and centers that the loss does not have."""
    loss, defaults = config.loss, TrainConfig()
    if config.ccp.enabled and loss not in CCP_LOSSES:
        raise ConfigError(f"ccp needs a loss out of {', '.join(CCP_LOSSES)}, got {loss}")
    # Runs of 0.1.0 without proxies stored the solution best, which was the default.
    plain = (defaults.ccp, replace(defaults.ccp, solution="best"))
    if not config.ccp.enabled and config.ccp not in plain:
        raise ConfigError("options ccp.… have no effect without --ccp")
    if config.normalize == "ball" and loss not in WITHOUT_NORMALIZATION:
        raise ConfigError(f"normalize must be l2 with loss {loss}, which is for unit vectors")
    if config.center_reg is None:
        if config.center != defaults.center:
            raise ConfigError("options center.… have no effect without --center-reg")
        return
    if config.center_reg not in REGULARIZERS:
        raise ConfigError(
            f"center_reg must be one of {', '.join(REGULARIZERS)}, got {config.center_reg!r}"
        )
    if config.center.momentum is not None and not has_running_centers(config):
        raise ConfigError(
            f"center.momentum has no effect: the centers are the proxies of loss {loss}"
        )


def has_running_centers(config: TrainConfig) -> bool:
    """Whether class centers are running means, since the loss has no proxies."""
    proxies = LOSSES[config.loss].proxy or config.ccp.enabled
    return config.center_reg is not None and not proxies


def check_batches(config: TrainConfig, recipe: LossRecipe) -> None:
    """Refuse sizes in a resolved configuration that do not fit together."""
    proxies, candidates = config.ccp.proxies, config.ccp.candidates
    if proxies is not None and candidates is not None and candidates < proxies:
        raise ConfigError(
            f"ccp.candidates must be at least ccp.proxies = {proxies}, which are picked among "
            f"them, got {candidates}"
        )
    per_class = config.images_per_class
    assert per_class is not None
    if per_class == 0:  # what batches hold depends on the data
        return
    if config.batch_size % per_class:
        raise ConfigError(
            f"batch_size {config.batch_size} must be a multiple of images_per_class {per_class}"
        )
    if not recipe.proxy and not config.ccp.enabled and per_class < 2:
        raise ConfigError(
            f"images_per_class must be at least 2 with loss {config.loss}, which compares images "
            f"of a class with each other, got {per_class}"
        )
    if config.zero_shot.weight and config.batch_size // per_class < 2:
        raise ConfigError(
            f"the zero-shot loss needs at least two classes per batch: batch_size "
            f"{config.batch_size} with images_per_class {per_class} has one"
        )
