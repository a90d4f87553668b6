"""Command-line parser: one-line errors, and limits on YAML files."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, get_loader, set_loader

from sumpool.system.documents import check_yaml
from sumpool.training.config import ConfigError, option_hints
from sumpool.training.values.choices import not_among
from sumpool.training.values.types import plain_error

_load = get_loader("yaml")


def _load_checked(text: str) -> Any:
    check_yaml(text)
    return _load(text)


set_loader("yaml", _load_checked, exceptions=(yaml.YAMLError,))


class UsageError(ConfigError):
    """Arguments cannot be parsed.

    Attributes:
        file: The file with the wrong options; None if they were typed.
    """

    file: str | None = None


class Parser(ArgumentParser):
    """A parser that raises errors instead of exiting."""

    def parse_path(self, path: Any, *arguments: Any, **options: Any) -> Any:
        """Parse a file and validate it before options are merged, so that errors can name it."""
        try:
            return super().parse_path(path, *arguments, **{**options, "_skip_validation": False})
        except UsageError as error:
            error.file = str(path)
            raise

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise ``message`` as a :class:`UsageError`."""
        raise UsageError(message) from ex


def usage_error(error: Exception, parser: ArgumentParser, typed: Sequence[str]) -> str:
    """Describe an error in the arguments ``typed`` in one line, with options spelled as typed."""
    message = str(error)
    unknown = re.match(r"unrecognized arguments: (.*)|Option '(\S+)' is not accepted", message)
    if unknown:
        rest = unknown[1] or f"--{unknown[2]}"
        first = max((it for it in typed if rest.startswith(it)), key=len, default=rest.split()[0])
        message = _unknown(first, parser, typed)
    choice = re.match(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
    if choice:
        names = [name.strip("'") for name in choice[3].split(", ")]
        message = not_among(choice[1], choice[2], names)
    absent = re.match(r'the following arguments are required: (.*)|expected "(\S+)" to', message)
    if absent:
        message = _missing((absent[1] or absent[2]).split(", "), parser, typed)
    message = plain_error(message, option_hints())
    # Options are stored with _ and may be typed with -.
    for argument in typed:
        name = argument.partition("=")[0]
        message = re.sub(
            rf"{re.escape(name.replace('-', '_').replace('__', '--', 1))}\b", name, message
        )
    file = error.file if isinstance(error, UsageError) else None
    return message if file is None else f"{file}: {message}"


def _unknown(typed_name: str, parser: ArgumentParser, typed: Sequence[str]) -> str:
    """Message for an unknown argument, with similar names."""
    name, known = typed_name.partition("=")[0], known_options(parser, typed)
    close = closest(name, known)
    if "--data" in known and "--data" not in typed and os.path.exists(typed_name):
        close = [f"--data {shlex.quote(typed_name)}"]
    what = "option" if name.startswith("-") else "argument"
    if what == "argument" and typed[0] == "search":
        return f"unknown argument {name}: queries follow INDEX, and --csv and --json take no file"
    return f"unknown {what} {name}" + (f": did you mean {' or '.join(close)}?" if close else "")


def _missing(names: Sequence[str], parser: ArgumentParser, typed: Sequence[str]) -> str:
    """Message for missing arguments, given by their dotted names."""
    options = known_options(parser, typed)
    own = [name.rpartition(".")[2] for name in names]
    spelled = [f"--{name}" if f"--{name}" in options else name.upper() for name in own]
    verb = "".join(f" {it}" for it in names[0].split(".")[:-1])
    what = "is" if len(names) == 1 else "are"
    return f"{' and '.join(spelled)} {what} missing: see sumpool{verb} --help"


def known_options(parser: ArgumentParser, typed: Sequence[str]) -> list[str]:
    """List the options of the typed verb."""
    names: list[str] = []
    for action in parser._actions:
        names += [name.replace("_", "-") for name in action.option_strings]
        for verb, own in (action.choices or {}).items() if isinstance(action.choices, dict) else ():
            if verb in typed[:2]:
                names += known_options(own, typed)
    return names


def closest(name: str, known: Iterable[str]) -> list[str]:
    """Find up to three options that ``name`` may refer to: ``--lr`` to ``--optimizer.lr``."""
    known, name = list(known), name.replace("_", "-")
    last = name.lstrip("-").rpartition(".")[2]
    inside = [it for it in known if it.endswith(f".{last}")]
    return (inside or difflib.get_close_matches(name, known))[:3]
