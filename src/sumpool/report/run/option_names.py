"""The dotted names of a run's options, and their names in earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CCP = "proxies", "pull", "patience", "problems", "solution", "batch_weight", "beta", "alpha"
#: New names by old ones, to read files of earlier versions. On the command line, an old name is an
#: error that mentions the new one.
RENAMED: Mapping[str, str] = {
    "exhibits": "gallery",
    "ccp": "ccp.enabled",
    "chance.pool": "ccp.candidates",
    **{f"chance.{name}": f"ccp.{name}" for name in _CCP},
}
#: Options for where a run is stored and what is kept of it, without effect on its result.
WHERE_IT_RUNS = frozenset(
    {
        *("out", "cache", "cache_dir", "gallery", "checkpoint_seconds", "keep_checkpoints"),
        "allow_outside",
    }
)
_FORMER = {new: old for old, new in RENAMED.items()}


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested options to their current dotted names.

    Example:
        >>> flatten({"ccp": True, "chance": {"pool": 12}, "stop": {"patience": 15}})
        {'ccp.enabled': True, 'ccp.candidates': 12, 'stop.patience': 15}
    """
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[current_name(f"{prefix}{name}")] = value
    return flat


def current_name(name: str) -> str:
    """Return the current name of an option."""
    return RENAMED.get(name, name)


def first_name(name: str) -> str:
    """Return the original name of an option, which identities of stored results are built from."""
    return _FORMER.get(name, name)
