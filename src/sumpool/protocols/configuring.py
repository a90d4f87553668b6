"""Configurations under a protocol: what it sets, what it keeps, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sumpool.losses import LOSSES
from sumpool.losses.recipe import DATASET_COLUMNS
from sumpool.protocols.protocol import Member, Protocol
from sumpool.training.config import ConfigError, TrainConfig, differences, flat
from sumpool.training.settings import resolve

#: Options that are settings of a protocol, besides the groups ``optimizer`` and ``stop``.
SETTINGS = ("embedding_size", "batch_size", "images_per_class")


def configured(
    protocol: Protocol,
    config: TrainConfig,
    member: Member,
    data_set: str,
    given: Collection[str],
) -> TrainConfig:
    """See :meth:`Protocol.configure`."""
    _check(protocol, config, member, data_set, given)
    asked = {*differences(config, TrainConfig()), *given}
    own = flat(config)
    fixed = _fixed(protocol, member)
    for name, value in fixed.items():
        if name in asked and own[name] != value:
            raise ConfigError(
                f"{name} is {own[name]!r}, but the {protocol.name} protocol trains {member} with "
                f"{value!r}: leave it out"
            )
    wanted = protocol.prescribe(config, data_set)
    changes = {name: value for name, value in wanted.items() if name not in asked}
    config = with_options(config, {**changes, **fixed})
    config = replace(config, pool=protocol.heads.get(config.pool, config.pool))
    config = resolve(config, data_set)
    recipe = LOSSES[config.loss]
    if recipe.proxy and config.images_per_class != recipe.images_per_class:
        raise ConfigError(
            f"images_per_class is {config.images_per_class} in the {protocol.name} protocol, but "
            f"loss {config.loss} compares images with proxies and is trained with "
            f"{recipe.images_per_class}: choose a loss without proxies"
        )
    return config


def departed(protocol: Protocol, config: TrainConfig, data_set: str) -> dict[str, tuple[Any, Any]]:
    """See :meth:`Protocol.departures`."""
    defaults = flat(TrainConfig())
    settings = [
        name
        for name in defaults
        if name in SETTINGS or (name.startswith(("optimizer.", "stop.")) and name != "stop.monitor")
    ]
    member = Member(config.fold, config.seed)
    bare = with_options(config, {name: defaults[name] for name in settings})
    own, published = flat(config), flat(configured(protocol, bare, member, data_set, ()))
    return {name: (own[name], published[name]) for name in settings if own[name] != published[name]}


def with_options(config: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """``config`` with options set by their dotted names.

    Example:
        >>> with_options(TrainConfig(), {"stop.patience": 3, "seed": 1}).stop.patience
        3
    """
    for name, value in values.items():
        group, _, key = name.partition(".")
        changed = replace(getattr(config, group), **{key: value}) if key else value
        config = replace(config, **{group: changed})
    return config


def _fixed(protocol: Protocol, member: Member) -> dict[str, Any]:
    defaults = TrainConfig()
    return {
        "selection": protocol.selection,
        "fold": member.fold,
        "folds": defaults.folds if protocol.folds is None else protocol.folds,
        "validation": defaults.validation,
        "seed": member.seed,
        "stop.monitor": protocol.monitor,
        "test": protocol.reads_test,
    }


def _check(
    protocol: Protocol,
    config: TrainConfig,
    member: Member,
    data_set: str,
    given: Collection[str],
) -> None:
    if data_set not in DATASET_COLUMNS:
        raise ConfigError(
            f"data_set must be one of {', '.join(DATASET_COLUMNS)} ('default' for any other), got "
            f"{data_set!r}"
        )
    folds = protocol.models_folds or (None,)
    if member.fold not in folds:
        listed = ", ".join(map(str, folds))
        raise ConfigError(
            f"fold must be one of {listed} in the {protocol.name} protocol, got {member.fold}"
        )
    if member.seed < 0:
        raise ConfigError(f"seed must be at least 0, got {member.seed}")
    unknown = sorted(set(given) - set(flat(config)))
    if unknown:
        raise ConfigError(f"given must name options, got {', '.join(unknown)}")
    if config.loss not in LOSSES:
        raise ConfigError(f"loss must be one of {', '.join(LOSSES)}, got {config.loss!r}")
