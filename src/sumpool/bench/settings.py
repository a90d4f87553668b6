"""Parse the options set for all cells of a grid, from KEY=VALUE to typed values."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any

from jsonargparse import ArgumentParser

from sumpool.report.run.option_names import RENAMED
from sumpool.training.config import ConfigError, TrainConfig, config_from_dict, flat, option_hints
from sumpool.training.values.types import plain_error

#: Dictionary options, whose items are set by name, such as ``pool_options.p``.
_TABLES = ("pool_options", "loss_options", "backbone_options")


def parse_settings(texts: Sequence[str], option: str = "set") -> dict[str, Any]:
    """Parse options of `sumpool train` into typed values by dotted name.

    Args:
        texts: One ``KEY=VALUE`` each; ``-`` in a key stands for ``_``.
        option: Name of the settings in error messages.

    Raises:
        ConfigError: If an option is unknown, is given twice, or has a value of the wrong type.

    Example:
        >>> parse_settings(["stop.max-steps=4", "optimizer.lr=1e-3"])
        {'stop.max_steps': 4, 'optimizer.lr': 0.001}
    """
    return {name: copy(value) for name, value in _parsed(tuple(texts), option).items()}


@cache
def _parsed(texts: tuple[str, ...], option: str) -> dict[str, Any]:
    # Cached because many cells share the same settings.
    known = flat(TrainConfig())
    given: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.replace("-", "_")
        if not equals:
            raise ConfigError(f"{option} must be KEY=VALUE, got {text!r}")
        if key in RENAMED:
            raise ConfigError(f"{option}: the option {key} is called {RENAMED[key]}")
        if key in given:
            raise ConfigError(f"{option} gives {key} twice")
        if key not in known and key.partition(".")[0] not in _TABLES:
            close = difflib.get_close_matches(key, known, 3)
            hint = f"; close ones are {', '.join(close)}" if close else ""
            raise ConfigError(f"{option} names no option of `sumpool train`: {key!r}{hint}")
        given[key] = value
    if not given:
        return {}
    try:
        parsed = _parser().parse_args([f"--{key}={value}" for key, value in given.items()])
    except argparse.ArgumentError as error:
        message = plain_error(str(error), option_hints()).removeprefix("--")
        raise ConfigError(f"{option} {', '.join(texts)}: {message}") from error
    values = flat(config_from_dict(parsed.as_dict()))
    names = {key if key in known else key.partition(".")[0]: None for key in given}
    return {name: values[name] for name in names}


@cache
def _parser() -> ArgumentParser:
    # Cached because it takes half a second.
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(TrainConfig, as_group=False)
    return parser
