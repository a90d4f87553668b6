"""Every public name exists and is documented in its own words."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import sumpool

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sumpool"
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
SUBPACKAGES = sorted(
    info.name for info in pkgutil.walk_packages(sumpool.__path__, "sumpool.") if info.ispkg
)


def own_docstring(thing: object) -> str:
    """The docstring written at the definition of ``thing``: not inherited, not generated."""
    if not inspect.isclass(thing):
        return (getattr(thing, "__doc__", None) or "").strip()
    text = (vars(thing).get("__doc__") or "").strip()
    # dataclass and NamedTuple fill in "Name(field: type, ...)" where nothing was written.
    generated = text.startswith(f"{thing.__name__}(")
    inherited = any(text == (base.__doc__ or "").strip() for base in thing.__mro__[1:])
    return "" if generated or inherited else text


def public_members(cls: type, package: str) -> Iterator[tuple[str, object]]:
    """Public methods and properties that ``package`` defines for ``cls``.

    An override of a method that a foreign base class documents (``extra_repr``) needs no text of
    its own; ``forward`` does, because it is what the class is for.
    """
    ours = [base for base in cls.__mro__ if base.__module__.split(".")[0] == package]
    foreign = [base for base in cls.__mro__ if base not in ours]
    for base in ours:
        for name, member in vars(base).items():
            if isinstance(member, staticmethod | classmethod):
                member = member.__func__
            if name.startswith("_") or not (
                inspect.isfunction(member)
                or isinstance(member, property | functools.cached_property)
            ):
                continue
            if name == "forward" or not any(name in vars(other) for other in foreign):
                yield f"{base.__name__}.{name}", member


def undocumented(module: object, names: list[str], package: str = "sumpool") -> list[str]:
    """The names, and the members of classes among them, that say nothing about themselves.

    Constants are described in their module's docstring or a ``#:`` comment, which Python does not
    keep, so only functions and classes are looked at.
    """
    missing = []
    for name in names:
        thing = getattr(module, name)
        if (inspect.isclass(thing) or inspect.isroutine(thing)) and not own_docstring(thing):
            missing.append(name)
        if inspect.isclass(thing):
            members = public_members(thing, package)
            missing += [label for label, member in members if not own_docstring(member)]
    return missing


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse((SOURCE / path).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_public_names_exist_and_are_listed_once(name: str) -> None:
    module = importlib.import_module(name)
    names = module.__all__
    assert names
    assert len(set(names)) == len(names)
    assert [it for it in names if not hasattr(module, it)] == []


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_public_names_are_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert undocumented(module, module.__all__) == []


class Documented:
    """A parent with words of its own."""

    def run(self) -> None:
        """Runs."""


class Inherits(Documented):
    def run(self) -> None: ...


class Pasted(Documented):
    """A parent with words of its own."""


@dataclass
class Bare:
    x: int

    @property
    def double(self) -> int:
        return 2 * self.x


class Layer(torch.nn.Module):
    """A layer that says nothing about its call."""

    def extra_repr(self) -> str:
        return ""

    def forward(self, x: int) -> int:
        return x


def silent() -> None: ...


def test_missing_generated_and_inherited_docstrings_are_caught() -> None:
    things = {it.__name__: it for it in (Documented, Inherits, Pasted, Bare, Layer, silent)}
    missing = undocumented(SimpleNamespace(**things), list(things), package=__name__.split(".")[0])
    assert missing == [
        "Inherits",
        "Inherits.run",
        "Pasted",
        "Bare",
        "Bare.double",
        "Layer.forward",
        "silent",
    ]
