"""What sets cells apart that have the same names: options that protocol and method do not give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sumpool.bench.cells import FOLD_AND_SEED, FORMER_DEFAULTS, identity_options
from sumpool.pooling import pooling_class
from sumpool.protocols import PROTOCOLS, Member
from sumpool.report.run.option_names import current_name
from sumpool.training.config import TrainConfig, flat, with_options

#: Options that name a method and not a setting of it.
_NAMING = ("format", "backbone", "loss", "pool", "ccp.enabled", "center_reg")


def changed_options(protocol: str, config: TrainConfig) -> dict[str, str]:
    """Options of a configured run that differ from those of protocol and method; mostly none.

    Example:
        >>> config = TrainConfig(format="cub", batch_size=64)
        >>> changed_options("fair", PROTOCOLS["fair"].configure(config, Member(1, 0), "cub"))
        {'batch_size': '64'}
    """
    own, usual = flat(config), flat(_usual(protocol, config))
    recorded = {current_name(name): it for name, it in identity_options(own).items()}
    changed = {}
    for name in own:
        value = _value(own, name)
        known = is_used(name, config) if name in FORMER_DEFAULTS else name in recorded
        if known and value != usual[name] and name not in FOLD_AND_SEED:
            changed[name] = _short(recorded.get(name, value))
    return changed


def has_options(config: TrainConfig, options: Mapping[str, Any]) -> bool:
    """Whether a run was trained with ``options``, as far as it has what they are of.

    Example:
        >>> has_options(TrainConfig(crop=288), {"crop": 288, "ccp.solution": "last"})
        True
    """
    own = flat(config)
    return all(_value(own, it) == wanted for it, wanted in options.items() if is_used(it, config))


def is_used(name: str, config: TrainConfig) -> bool:
    """Whether a run with ``config`` has what the option is of."""
    if name.startswith("ccp."):
        return config.ccp.enabled
    if name.startswith("zero_shot."):
        return bool(config.zero_shot.weight) or config.zero_shot.balance is not None
    return True


def options_text(options: Mapping[str, str]) -> str:
    """Options as they are written after ``--set``, with commas.

    Example:
        >>> options_text({"batch_size": "64", "gsp.mu": "0.1"})
        'batch_size=64, gsp.mu=0.1'
    """
    return ", ".join(f"{name}={value}" for name, value in options.items())


def set_apart(changed: Sequence[Mapping[str, str]]) -> tuple[str, list[list[str]]]:
    """What all rows of a table have in common, and the cells of a column with the rest.

    There is no such column, and its cells are empty lists, where nothing is left to say.

    Example:
        >>> set_apart([{"lr": "1e-4", "mu": "0.1"}, {"lr": "1e-4", "mu": "0.3"}])
        ('all with lr=1e-4', [['mu=0.1'], ['mu=0.3']])
        >>> set_apart([{}, {}])
        ('', [[], []])
    """
    first = changed[0] if changed else {}
    shared = {
        name: value for name, value in first.items() if all(it.get(name) == value for it in changed)
    }
    own = [{name: it[name] for name in it if name not in shared} for it in changed]
    words = f"all with {options_text(shared)}" if shared else ""
    return words, [[options_text(it)] if any(own) else [] for it in own]


def _usual(protocol: str, config: TrainConfig) -> TrainConfig:
    """The configuration of the same method with nothing set."""
    own = flat(config)
    usual = with_options(TrainConfig(), {name: own[name] for name in _NAMING})
    if not config.zero_shot.weight and pooling_class(config.pool).has_attributes:
        usual = replace(usual, zero_shot=replace(usual.zero_shot, weight=0.0))
    member = Member(config.fold, config.seed)
    return PROTOCOLS[protocol].configure(usual, member, config.format)


def _value(options: Mapping[str, Any], name: str) -> Any:
    # Rows of earlier versions do not have the option, and mean its former default.
    value = options[name]
    return FORMER_DEFAULTS.get(name) if value is None else value


def _short(value: Any) -> str:
    # Of a file, its name: where it lies says nothing about the result.
    return Path(value).name if isinstance(value, str) and "/" in value else str(value)
