"""Safe loading of untrusted JSON and YAML, within limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

#: Maximum characters, nodes and levels of a YAML document; configurations have far fewer.
MAX_CHARACTERS = 1_000_000
MAX_NODES = 20_000
MAX_DEPTH = 32
#: Maximum characters of one value: Python parses very long numbers slowly, or rejects them.
MAX_VALUE_LENGTH = 4_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_json(path: Path) -> Any:
    """Load a JSON file.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is not JSON, cannot be decoded, or is nested too deeply.
    """
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def load_yaml(text: str) -> Any:
    """Parse YAML text.

    Raises:
        ValueError: If it is not YAML, or exceeds the limits of :func:`check_yaml`.

    Example:
        >>> load_yaml("a: [1, 2]")
        {'a': [1, 2]}
    """
    try:
        check_yaml(text)
        return yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def check_yaml(text: str) -> None:
    """Refuse YAML that is slow to build: aliases, deep nesting, too many or too long values.

    Raises:
        yaml.YAMLError: If it is not YAML, or exceeds a limit.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it is longer than {MAX_CHARACTERS:,} characters")
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"it has an alias, *{event.anchor}: write the value out")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > MAX_VALUE_LENGTH:
            raise yaml.YAMLError(f"it has a value of more than {MAX_VALUE_LENGTH:,} characters")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise yaml.YAMLError(f"it has more than {MAX_DEPTH} levels or {MAX_NODES:,} values")
