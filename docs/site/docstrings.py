"""Docstrings as Markdown: roles, formulas and citations (an extension of Griffe)."""

from __future__ import annotations

import re
from typing import Any

import griffe

FORMULA = re.compile(r":math:`([^`]+)`")
DISPLAYED = re.compile(r"^\.\. math::\n\n?((?: +.+\n?)+)", re.MULTILINE)
LITERAL = re.compile(r"::$", re.MULTILINE)
ROLE = re.compile(r":[a-z]+:`(~?)([\w.]+)`")
#: [gsp] or [gsp, Eq. 7], as tests/test_docs.py reads them.
CITATION = re.compile(r"(?<![\w\]\[`])\[([a-z][a-z0-9-]{2,})(, [^\]]+)?\](?![\](])")
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites docstrings once the package is loaded, when names can be resolved."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Visit everything the package defines."""
        visit(pkg)


def visit(thing: griffe.Object) -> None:
    """Rewrite the docstrings of ``thing`` and its members."""
    if thing.docstring:
        thing.docstring.value = markdown(thing, thing.docstring.value)
    for member in thing.members.values():
        if isinstance(member, griffe.Object):
            visit(member)


def markdown(thing: griffe.Object, text: str) -> str:
    """The docstring ``text`` of ``thing`` as Markdown with links."""

    def link(role: re.Match[str]) -> str:
        name = role[2]
        try:
            target = thing.resolve(name)
        except griffe.NameResolutionError:
            target = name
        shown = name.rpartition(".")[2] if role[1] else name
        return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'

    text = EXAMPLE.sub("Examples:", text)  # the name that Griffe knows
    prose, examples, code = text.partition("Examples:\n")
    prose = DISPLAYED.sub(r"$$\n\1$$\n", prose)
    prose = ROLE.sub(link, FORMULA.sub(r"$\1$", LITERAL.sub(":", prose)))
    prose = CITATION.sub(r"[[\1\2]](../references.md#\1)", prose)
    return prose + examples + code
