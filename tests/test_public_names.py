"""Every public name exists, is documented in its own words, and has a type.

Public are the package root and its direct subpackages that list names in ``__all__``. Folders
further down (``sumpool.data.sets``) and subpackages without ``__all__`` group modules.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import sumpool

#: Names that others rely on, by the root that has them.
STABLE = {
    "sumpool": {"Embedder", "load", "partial_transport", "sum_pool"},
    "sumpool.centers": {"build_regularizer", "center_uniformity", "greedy_k_center"},
    "sumpool.evaluation": {"retrieval_metrics"},
    "sumpool.losses": {"LOSSES", "build_loss"},
    "sumpool.pooling": {"POOLINGS", "build_pooling", "GeneralizedSumPool2d"},
    "sumpool.transport": {"partial_transport", "sum_pool"},
}


@pytest.fixture(scope="module")
def roots() -> list[ModuleType]:
    packages = [it.name for it in pkgutil.iter_modules(sumpool.__path__, "sumpool.") if it.ispkg]
    modules = [sumpool, *map(importlib.import_module, packages)]
    return [module for module in modules if hasattr(module, "__all__")]


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


def declared(stub: Path) -> set[str]:
    """The names that a stub file declares."""
    names: set[str] = set()
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_public_names_exist_and_are_listed_once(roots: list[ModuleType]) -> None:
    wrong = [
        f"{module.__name__}.{name}"
        for module in roots
        for name in module.__all__
        if module.__all__.count(name) > 1 or not hasattr(module, name)
    ]
    assert wrong == []


def test_public_names_are_documented(roots: list[ModuleType]) -> None:
    found = {module.__name__: undocumented(module, module.__all__) for module in roots}
    assert {root: names for root, names in found.items() if names} == {}


def test_stubs_declare_what_the_roots_have(roots: list[ModuleType]) -> None:
    stubs = {
        module: Path(str(module.__file__)).with_suffix(".pyi")
        for module in roots
        if "lazy_loader" in inspect.getsource(module)
    }
    assert stubs
    for module, stub in stubs.items():
        own = {name for name in vars(module) if name == "__version__"}
        assert declared(stub) == set(module.__all__) | own, module.__name__
        assert set(module.__all__) <= set(dir(module))


def test_names_that_others_rely_on_stay(roots: list[ModuleType]) -> None:
    public = {module.__name__: set(module.__all__) for module in roots}
    assert {root: names - public[root] for root, names in STABLE.items()} == {
        root: set() for root in STABLE
    }


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
