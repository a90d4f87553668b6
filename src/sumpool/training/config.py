"""Reading, writing, comparing and changing configurations by dotted option names."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from sumpool.report.run.option_names import RENAMED, current_name
from sumpool.system.documents import load_yaml
from sumpool.system.errors import UserError
from sumpool.system.files import write_atomic
from sumpool.training.options import TrainConfig as TrainConfig
from sumpool.training.values.types import describe_type, fits


class ConfigError(UserError):
    """A configuration cannot be used; the message names the option and what is accepted."""


_GROUPS: dict[str, Any] = {
    entry.name: entry.default_factory
    for entry in dataclasses.fields(TrainConfig)
    if dataclasses.is_dataclass(entry.default_factory)
}

#: Options that may change when a run is resumed: they affect where, how and for how long it runs,
#: not what it computes.
FREE_TO_CHANGE = frozenset(
    {
        *("out", "cache", "cache_dir", "checkpoint_seconds", "keep_checkpoints", "gallery"),
        *("allow_outside", "skip_broken", "hardware.workers", "stop.max_steps"),
    }
)


def config_from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """Build a configuration from the dictionary that :func:`dataclasses.asdict` makes of it.

    Raises:
        ConfigError: If a key is not an option, or a value has the wrong type; for a renamed option
            it gives the new name.
    """
    _refuse_old_names(values)
    if text := [name for name in values if not isinstance(name, str)]:
        raise ConfigError(f"unknown option: {text[0]!r:.80}")
    groups = {
        name: _build(_GROUPS[name], value, f"{name}.")
        for name, value in values.items()
        if name in _GROUPS
    }
    config: TrainConfig = _build(TrainConfig, {**values, **groups}, "")
    return config


def _refuse_old_names(values: Mapping[str, Any]) -> None:
    for old, new in RENAMED.items():
        group, _, key = old.partition(".")
        given = values.get(group)
        if group in values and (key in given if isinstance(given, Mapping) else not key):
            raise ConfigError(f"the option {old} is called {new}")


def _build(kind: Any, values: Mapping[str, Any], prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix}… must be a group of options, got {values!r}")
    hints = get_type_hints(kind)
    unknown = sorted(str(name) for name in set(values) - set(hints))
    if unknown:
        names = ", ".join(f"{prefix}{name}" for name in unknown)
        raise ConfigError(f"unknown option: {names}")
    for name, value in values.items():
        if not fits(value, hints[name]):
            raise ConfigError(
                f"{prefix}{name} must be {describe_type(hints[name])}, got {value!r:.80}"
            )
    return kind(**values)


def _with_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    # Maps options in a file of an earlier version to their current names and groups.
    named: dict[str, Any] = {}
    for name, value in values.items():
        options = {name: value}
        if isinstance(value, Mapping) and (name in _GROUPS or name == "chance"):
            options = {f"{name}.{key}": inner for key, inner in value.items()}
        for dotted, inner in options.items():
            group, _, key = current_name(dotted).partition(".")
            if key:
                named.setdefault(group, {})[key] = inner
            else:
                named[group] = inner
    return named


def write_config(config: TrainConfig, path: Path, comment: str = "") -> None:
    """Write ``config`` as YAML, in the order of its options, completely or not at all.

    Args:
        config: The configuration.
        path: The file.
        comment: Lines to write before it.

    Raises:
        sumpool.system.files.StoreError: If it cannot be written.
    """
    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
    write_atomic(path, (comment + text).encode())


def read_config(path: Path) -> TrainConfig:
    """Read a configuration written by :func:`write_config`.

    Raises:
        ConfigError: If the file cannot be read, or is not a valid configuration.
    """
    try:
        values = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no configuration")
    try:
        return config_from_dict(_with_current_names(values))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def flat(config: TrainConfig) -> dict[str, Any]:
    """Return all options by dotted name."""
    out: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name in _GROUPS:
            out.update({f"{name}.{key}": copy.copy(inner) for key, inner in vars(value).items()})
        else:
            out[name] = copy.copy(value)
    return out


def differences(one: TrainConfig, other: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Return the options in which two configurations differ, with both values."""
    left, right = flat(one), flat(other)
    return {name: (left[name], right[name]) for name in left if left[name] != right[name]}


def flat_switches() -> set[str]:
    """Return the dotted names of the boolean options."""
    return {name for name, value in flat(TrainConfig()).items() if isinstance(value, bool)}


def option_hints() -> dict[str, Any]:
    """Return the types of all options by dotted name."""
    hints = get_type_hints(TrainConfig)
    return hints | {
        f"{group}.{name}": hint
        for group in _GROUPS
        for name, hint in get_type_hints(hints[group]).items()
    }


def with_options(config: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Return ``config`` with options replaced by dotted name.

    Example:
        >>> with_options(TrainConfig(), {"stop.patience": 3, "seed": 1}).stop.patience
        3
    """
    for name, value in values.items():
        group, _, key = name.partition(".")
        changed = dataclasses.replace(getattr(config, group), **{key: value}) if key else value
        config = dataclasses.replace(config, **{group: changed})
    return config
