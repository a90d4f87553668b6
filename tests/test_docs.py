"""The documentation: links lead somewhere, citations have an entry, examples run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources import source, together

pytestmark = together

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")])

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINED_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
# A path of the repository in code, as `tests/pooling` or in a command; NAME and … are placeholders.
PATH = re.compile(r"(?<![\w./-])((?:src|tests|benchmarks)/[\w./-]*\w)(?![\w/…*])")
# [gsp] or [gsp, Prop. 4.1], not the index in x[mask] and not the text of a link.
CITATION = re.compile(r"(?<![\w\]\[])\[([a-z][a-z0-9-]{2,})(?:, [^\]]+)?\](?![\](])")


def prose(page: Path) -> str:
    """The text of a page without fenced code and code spans."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The fragments a page can be linked at: its headings, as GitHub spells them, and ids."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = set(DEFINED_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken_links(page: Path) -> list[str]:
    """The relative links of a page whose file or fragment does not exist."""
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):  # https:, mailto:
            continue
        name, _, fragment = target.partition("#")
        path = (page.parent / name) if name else page
        missing = not path.exists()
        if missing or (fragment and path.suffix == ".md" and fragment not in anchors(path)):
            broken.append(target)
    return broken


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file, without their examples."""
    for text in source(path).docstrings:
        yield re.sub(r"^ *>>> .*?(?:\n\s*\n|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)


def examples() -> Iterator[object]:
    """The Python blocks of the pages that are scripts; those with prompts run as doctests."""
    for page in PAGES:
        blocks = FENCE.findall(page.read_text(encoding="utf-8"))
        scripts = [code for language, code in blocks if language == "python" and ">>>" not in code]
        for number, code in enumerate(scripts, 1):
            yield pytest.param(code, id=f"{page.relative_to(ROOT)}:{number}")


def test_relative_links_resolve() -> None:
    found = {str(page.relative_to(ROOT)): broken_links(page) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_paths_that_pages_name_exist() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages
        for path in PATH.findall(page.read_text(encoding="utf-8"))
        if "NAME" not in path and not (ROOT / path).exists()
    ]
    assert missing == []


def test_broken_links_are_caught(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title: with `code`\n<a id='x'></a>\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#a-title-with-code) [c](#here) [d](https://x.org/y)\n"
        "[e](none.md) [f](other.md#none) ![g](none.png) `[h](code.md)`\n"
        "```\n[i](code.md)\n```\n"
    )
    assert broken_links(page) == ["none.md", "other.md#none", "none.png"]


def test_citations_in_docstrings_are_in_the_bibliography() -> None:
    known = anchors(ROOT / "docs" / "references.md")
    unknown = [
        f"{path.relative_to(ROOT)}: [{key}]"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for text in docstrings(path)
        for key in CITATION.findall(text)
        if key not in known
    ]
    assert unknown == []


def test_bibliography_keys_are_their_anchors() -> None:
    text = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\* <a id=\"([^\"]+)\"></a>\*\*\[([^\]]+)\]\*\* ", text, re.MULTILINE)
    assert len(entries) == len(DEFINED_ANCHOR.findall(text))
    assert [key for anchor, key in entries if anchor != key] == []
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize("code", list(examples()))
def test_example_runs(code: str) -> None:
    exec(compile(code, "<example>", "exec"), {"__name__": "__example__"})
