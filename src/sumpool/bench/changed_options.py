"""Options of a cell that neither its protocol nor its method determines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sumpool.bench.cells import FOLD_AND_SEED, FORMER_DEFAULTS, identity_options
from sumpool.pooling import pooling_class
from sumpool.protocols import PROTOCOLS, Member
from sumpool.report.run.option_names import current_name
from sumpool.training.config import TrainConfig, flat, with_options

#: Options that identify a method rather than a setting of it.
_NAMING = ("format", "backbone", "loss", "pool", "ccp.enabled", "center_reg")
#: Options that are paths.
_PATHS = ("weights", "init")


def changed_options(protocol: str, config: TrainConfig) -> dict[str, str]:
    """Return options of a configured run that differ from its protocol and method; mostly none.

    Paths are complete; :func:`with_short_paths` shortens them.

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
            changed[name] = str(recorded.get(name, value))
    return changed


def has_options(config: TrainConfig, options: Mapping[str, Any]) -> bool:
    """Whether a run was trained with ``options``, ignoring those that do not apply to it.

    Example:
        >>> has_options(TrainConfig(crop=288), {"crop": 288, "ccp.solution": "last"})
        True
        >>> has_options(TrainConfig(), {"ccp.enabled": True})
        False
    """
    own = flat(config)
    return all(_value(own, it) == wanted for it, wanted in options.items() if _applies(it, config))


def is_used(name: str, config: TrainConfig) -> bool:
    """Whether a run with ``config`` has the component that the option configures."""
    if name.startswith("ccp."):
        return config.ccp.enabled
    if name.startswith("zero_shot."):
        return bool(config.zero_shot.weight) or config.zero_shot.balance is not None
    return True


def options_text(options: Mapping[str, Any]) -> str:
    """Format options in the syntax of ``--set``, separated by commas.

    Example:
        >>> options_text({"batch_size": "64", "gsp.mu": "0.1"})
        'batch_size=64, gsp.mu=0.1'
    """
    return ", ".join(f"{name}={value}" for name, value in options.items())


def with_short_paths(changed: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return options with only the last part of each path, unless two paths share it.

    Example:
        >>> with_short_paths([{"weights": "a/w.pth"}, {"weights": "b/w.pth", "init": "runs/1"}])
        [{'weights': 'a/w.pth'}, {'weights': 'b/w.pth', 'init': '1'}]
    """
    paths = {it[name] for it in changed for name in _PATHS if name in it}
    count = Counter(Path(path).name for path in paths)
    short = {it: Path(it).name for it in paths if count[Path(it).name] == 1}
    return [
        {name: short.get(value, value) if name in _PATHS else value for name, value in it.items()}
        for it in changed
    ]


def without_folders(changed: Mapping[str, str]) -> dict[str, str]:
    """Return options with only the name of the file of weights: another folder may hold it, too.

    Example:
        >>> without_folders({"weights": "a/w.pth", "init": "runs/1"})
        {'weights': 'w.pth', 'init': 'runs/1'}
    """
    return {it: Path(value).name if it == "weights" else value for it, value in changed.items()}


def set_apart(changed: Sequence[Mapping[str, str]]) -> tuple[str, list[list[str]]]:
    """Split options into a text with those common to all rows of a table, and a column of the rest.

    Paths are short. The column has a list of one cell per row, which is empty if all options are
    common.

    Example:
        >>> set_apart([{"lr": "1e-4", "mu": "0.1"}, {"lr": "1e-4", "mu": "0.3"}])
        ('all with lr=1e-4', [['mu=0.1'], ['mu=0.3']])
        >>> set_apart([{}, {}])
        ('', [[], []])
    """
    changed = with_short_paths(changed)
    first = changed[0] if changed else {}
    shared = {
        name: value for name, value in first.items() if all(it.get(name) == value for it in changed)
    }
    own = [{name: it[name] for name in it if name not in shared} for it in changed]
    words = f"all with {options_text(shared)}" if shared else ""
    return words, [[options_text(it)] if any(own) else [] for it in own]


def _usual(protocol: str, config: TrainConfig) -> TrainConfig:
    """Return the configuration of the same method with no other option set."""
    own = flat(config)
    usual = with_options(TrainConfig(), {name: own[name] for name in _NAMING})
    if not config.zero_shot.weight and pooling_class(config.pool).has_attributes:
        usual = replace(usual, zero_shot=replace(usual.zero_shot, weight=0.0))
    member = Member(config.fold, config.seed)
    return PROTOCOLS[protocol].configure(usual, member, config.format)


def _applies(name: str, config: TrainConfig) -> bool:
    # Whether a run has a component is an option of every run that could have it.
    if name == "ccp.enabled":
        return True
    if name in ("zero_shot.weight", "zero_shot.balance") or name.startswith("gsp."):
        return pooling_class(config.pool).has_attributes
    return is_used(name, config)


def _value(options: Mapping[str, Any], name: str) -> Any:
    # Rows of earlier versions lack the option, which then has its former default.
    value = options[name]
    return FORMER_DEFAULTS.get(name) if value is None else value
