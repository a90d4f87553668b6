"""Source files, each parsed once for all tests that look at it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

#: Of the files whose tests share what is parsed: they run in one process.
together = pytest.mark.xdist_group("sources")


class Source(NamedTuple):
    """What a file imports, wherever in it, and its docstrings."""

    imports: list[ast.Import | ast.ImportFrom]
    docstrings: list[str]


@cache
def source(path: Path) -> Source:
    found = Source([], [])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.docstrings.append(ast.get_docstring(node) or "")
    return found


def imported_names(path: Path, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything a file imports, wherever in it the import stands.

    ``package`` is the dotted name of the package the file belongs to, split at its dots.
    ``from a import b`` yields ``a.b``: b may be a module.
    """
    for node in source(path).imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            base = package[: len(package) - (node.level - 1)] if node.level else ()
            parts = (*base, node.module) if node.module else base
            for alias in node.names:
                yield node.lineno, ".".join((*parts, alias.name))
