"""Search space: options of a run with their ranges or choices, parsed from text."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from sumpool.report.run.option_names import RENAMED, WHERE_IT_RUNS
from sumpool.training.config import ConfigError, TrainConfig, flat, option_hints, with_options
from sumpool.training.values.choices import CHOICES, check_choices
from sumpool.training.values.limits import check_limits
from sumpool.training.values.types import describe_type, fits

#: Default search space; options that the user has set are excluded from it.
SPACE = (
    "optimizer.lr=1e-5..1e-3:log",
    "optimizer.embedding_lr_multiplier=1..30:log",
    "optimizer.weight_decay=1e-5..1e-2:log",
    "loss=c2,ms,panchor",
    "pool=gap,gemean,gsp,gsp-keys",
)
#: Default search space with a frozen backbone.
FROZEN_SPACE = ("optimizer.lr=1e-4..1e-2:log", *SPACE[2:])
#: Options that decide what is scored, or where a run is computed and stored: equal in all trials.
FIXED = frozenset(
    {
        *("data", "format", "fold", "folds", "validation", "selection", "test", "skip_broken"),
        *("seed", "stop.monitor", "hardware.accelerator", "hardware.devices", "hardware.nodes"),
        *("hardware.workers", "recipe", "minutes", *WHERE_IT_RUNS),
    }
)
_FORM = "KEY=A..B, KEY=A..B:log, KEY=A..B:int or KEY=a,b,c"


@dataclass(frozen=True)
class Dimension:
    """An option and the values it may take.

    Attributes:
        name: Dotted name of the option.
        choices: Its values; empty for a range.
        low: Smallest value of a range.
        high: Largest value of a range.
        log: Whether the range is searched on a logarithmic scale.
        whole: Whether the range is limited to integers.
    """

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    def __contains__(self, value: Any) -> bool:
        """Whether ``value`` is one of the choices, or in the range."""
        if self.choices:
            return any(value == it and isinstance(value, type(it)) for it in self.choices)
        return isinstance(value, int | float) and self.low <= value <= self.high

    @property
    def samples(self) -> tuple[Any, ...]:
        """The choices, or the ends of the range."""
        return self.choices or (self.low, self.high)

    @property
    def size(self) -> float:
        """Number of its values; infinite for a range of numbers that are not whole."""
        if self.choices:
            return len(self.choices)
        return self.high - self.low + 1 if self.whole else math.inf

    def rounded(self, value: Any) -> Any:
        """Round a ``value`` in a range to three digits, as used in training and printed."""
        if self.choices or not isinstance(value, float):
            return value
        return min(max(float(f"{value:.3g}"), self.low), self.high)

    def __str__(self) -> str:
        """Return the dimension in command-line syntax."""
        if self.choices:
            return f"{self.name}={','.join(map(option_text, self.choices))}"
        kind = (":int" if self.whole else "") + (":log" if self.log else "")
        return f"{self.name}={self.low:g}..{self.high:g}{kind}"


def parse_space(
    texts: Sequence[str], config: TrainConfig, given: Collection[str] = ()
) -> tuple[Dimension, ...]:
    """Parse ``texts`` into dimensions; if empty, use the default space without ``given`` options.

    Args:
        texts: One ``KEY=A..B``, ``KEY=A..B:log``, ``KEY=A..B:int`` or ``KEY=a,b,c`` each.
        config: Options of all trials.
        given: Names of the options that the user has set.

    Raises:
        ConfigError: If a text is invalid; names the key and what it accepts.

    Example:
        >>> [str(it) for it in parse_space(["optimizer.lr=1e-5..1e-3:log"], TrainConfig())]
        ['optimizer.lr=1e-05..0.001:log']
    """
    if not texts:
        declared = FROZEN_SPACE if config.freeze_backbone else SPACE
        texts = [it for it in declared if it.partition("=")[0] not in given]
        if not texts:
            raise ConfigError("vary is missing: every option of the default space is set")
    space = tuple(parse_dimension(text, config) for text in texts)
    names = [it.name for it in space]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"vary gives {name} twice")
    return space


def parse_dimension(text: str, config: TrainConfig) -> Dimension:
    """Parse one dimension; see :func:`parse_space`."""
    key, equals, values = text.partition("=")
    name = key.strip().replace("-", "_")
    if not equals or not values:
        raise ConfigError(f"vary must be {_FORM}, got {text!r}")
    hint = _check_name(name)
    low, dots, rest = values.partition("..")
    if not dots:
        choices = tuple(_value(name, it.strip(), hint) for it in values.split(","))
        if len(set(map(option_text, choices))) < max(2, len(choices)):
            raise ConfigError(f"vary {name} needs two different values or more, got {values!r}")
        found = Dimension(name, choices)
    else:
        high, *kinds = rest.split(":")
        if set(kinds) - {"log", "int"} or len(set(kinds)) < len(kinds):
            raise ConfigError(f"vary {name} takes A..B, A..B:log or A..B:int, got {values!r}")
        found = _range(name, hint, (low, high), kinds)
    for value in found.samples:
        if name in (*CHOICES, "backbone"):
            check_choices(name, value)
        check_limits(flat(with_options(config, {name: value})))
    return found


def option_text(value: Any) -> str:
    """Format a value as a command-line argument."""
    return value if isinstance(value, str) else json.dumps(value)


def space_to_json(space: Sequence[Dimension]) -> list[dict[str, Any]]:
    """Convert a space to the JSON values that are stored with a search."""
    return [{**asdict(it), "choices": list(it.choices)} for it in space]


def space_from_json(stored: Sequence[Mapping[str, Any]]) -> tuple[Dimension, ...]:
    """Restore a space from the output of :func:`space_to_json`."""
    return tuple(Dimension(**{**it, "choices": tuple(it["choices"])}) for it in stored)


def _check_name(name: str) -> Any:
    known = flat(TrainConfig())
    if name in RENAMED:
        raise ConfigError(f"vary: the option {name} is called {RENAMED[name]}")
    if name not in known:
        inside = [it for it in known if it.endswith(f".{name}")]
        close = inside or difflib.get_close_matches(name, known, 3)
        hint = f"; close ones are {', '.join(close)}" if close else ""
        raise ConfigError(f"vary names no option of `sumpool train`: {name!r}{hint}")
    if name in FIXED:
        raise ConfigError(
            f"vary cannot change {name}: it is the same in all trials, which are compared"
        )
    hint = option_hints()[name]
    if isinstance(known[name], dict | list) or not _plain(hint):
        raise ConfigError(f"vary takes options with one value, {name} is {describe_type(hint)}")
    return hint


def _plain(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(map(_plain, get_args(hint)))
    return get_origin(hint) is Literal or hint in (int, float, str, bool, type(None))


def _range(name: str, hint: Any, ends: tuple[str, str], kinds: Sequence[str]) -> Dimension:
    if not fits(1, hint):
        raise ConfigError(f"vary {name} takes no range: it must be {describe_type(hint)}")
    whole = "int" in kinds or not fits(0.5, hint)
    low, high = (_value(name, it.strip(), int if whole else float) for it in ends)
    if not low < high:
        raise ConfigError(f"vary {name} needs a range A..B with A below B, got {low}..{high}")
    if "log" in kinds and low <= 0:
        raise ConfigError(f"vary {name}: a logarithmic range begins above 0, got {low}")
    return Dimension(name, low=low, high=high, log="log" in kinds, whole=whole)


def _value(name: str, text: str, hint: Any) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if not fits(value, hint):
        value = text  # a string that parses as JSON, such as a name of digits
    if not fits(value, hint):
        raise ConfigError(f"vary {name} must be {describe_type(hint)}, got {text!r}")
    number = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if number and fits(0.5, hint) else value
