"""The dotted names of a run's options, and what they were called in earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CCP = "proxies", "pull", "patience", "problems", "solution", "batch_weight", "beta", "alpha"
#: New names by old ones. Files of earlier versions are read through it; typed, an old name is an
#: error that says the new one.
RENAMED: Mapping[str, str] = {
    "exhibits": "gallery",
    "ccp": "ccp.enabled",
    "chance.pool": "ccp.candidates",
    **{f"chance.{name}": f"ccp.{name}" for name in _CCP},
}
#: Options that say where a run goes and what is kept of it, and change nothing in its result.
WHERE_IT_RUNS = frozenset(
    {
        *("out", "cache", "cache_dir", "gallery", "checkpoint_seconds", "keep_checkpoints"),
        "allow_outside",
    }
)
_FORMER = {new: old for old, new in RENAMED.items()}


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options by dotted name, as they are called today.

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
    """What an option is called today."""
    return RENAMED.get(name, name)


def first_name(name: str) -> str:
    """What an option was called when it was new: identities of stored results are made of it."""
    return _FORMER.get(name, name)
