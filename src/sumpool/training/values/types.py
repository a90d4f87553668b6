"""Checks and descriptions of the values that an option accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
}


def fits(value: Any, hint: Any) -> bool:
    """Whether an option of the type ``hint`` accepts ``value``.

    >>> fits(1, float | None), fits(True, int), fits("x", Literal["a", "b"])
    (True, False, False)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(it, inner[1]) for key, it in value.items()
        )
    if origin is list:
        return isinstance(value, list) and all(fits(it, inner[0]) for it in value)
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def describe_type(hint: Any) -> str:
    """Describe the values of an option of the type ``hint``.

    >>> describe_type(int | None), describe_type(Literal["none", "ram"])
    ('a whole number or null', 'none or ram')
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(describe_type(one) for one in inner)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is list:
        return f"a list, each {describe_type(inner[0])}"
    return "a table of names and values" if origin is dict else _WORDS.get(hint, "a group")


def plain_error(message: str, hints: Mapping[str, Any]) -> str:
    r"""Rewrite a parser error in one line, without Python types.

    Args:
        message: The message of jsonargparse.
        hints: The types of options by dotted name.

    >>> plain_error("Parser key \"seed\":\n  Expected a <class 'int'>. Got value: x", {"seed": int})
    '--seed must be a whole number, got x'
    """
    key = re.search(r'Parser key "([\w.]+)"', message)
    value = re.search(r"(?:Got|Given) value: (.*)", message)
    plain = re.search(r"Expected an? <class '(int|float)'>", message)
    builtin = {"int": int, "float": float}[plain[1]] if plain else None
    if key and value and (hint := hints.get(key[1], builtin)) is not None:
        return f"--{key[1]} must be {describe_type(hint)}, got {value[1]:.80}"
    message = re.sub(r'Parser key "[\w.]+":|^argument (?=-)', "", message)
    message = re.sub(r"expected (?:one|at least one) argument", "a value is missing", message)
    return " ".join(message.split())
