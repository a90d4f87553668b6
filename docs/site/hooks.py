"""Builds the site from the repository as it is (a hook of MkDocs).

Pages keep the links that work in the repository. Here those links are led to where the site has the
target: README.md is the start page, notebooks are pages, and source files that are linked become
pages too. The reference has one page per public subpackage, and must show every public name.
"""

from __future__ import annotations

import functools
import html
import importlib
import os
import pkgutil
import re
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

import sumpool

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Files outside of docs/ that are pages, and where.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
#: Where source files are shown that pages link to.
SOURCE = "source"
#: The font of formulas.
FONT = "STIXTwoMath-Regular.ttf"

CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)#])")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)


@functools.cache
def public_names() -> dict[str, list[str]]:
    """What the package and its direct subpackages export, as dotted names by module."""
    inside = pkgutil.iter_modules(sumpool.__path__, "sumpool.")
    modules = [sumpool, *(importlib.import_module(it.name) for it in inside if it.ispkg)]
    return {
        it.__name__: [dotted(it, name) for name in it.__all__]
        for it in modules
        if hasattr(it, "__all__")
    }


def dotted(module: ModuleType, name: str) -> str:
    """The name in its module, or in the one that defines it if that has the same name."""
    defined = getattr(getattr(module, name), "__module__", "")
    return f"{defined if defined.endswith(f'.{name}') else module.__name__}.{name}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write out the entries of the navigation that end in ``/*``."""
    results = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("results/*/README.md"))
    reference = [{name: f"reference/{name}.md"} for name in public_names()]
    every = {"reference/*": reference, "results/*": results}

    def written(entries: list[Any]) -> list[Any]:
        out: list[Any] = []
        for entry in entries:
            if isinstance(entry, str):
                out += every.get(entry, [entry])
                continue
            ((title, value),) = entry.items()
            out.append(
                {title: written(value) if isinstance(value, list) else every.get(value, value)}
            )
        return out

    config.nav = written(config.nav or [])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not a file of ``docs/``: root pages, notebooks, reference, linked sources."""

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    font = metadata.distribution("ziamath").locate_file(f"ziamath/fonts/{FONT}")
    add(f"site/{FONT}", Path(str(font)).read_bytes())
    for name, uri in PAGES.items():
        add(uri, (ROOT / name).read_text(encoding="utf-8"))
    for path in sorted(DOCS.glob("notebooks/*.ipynb")):
        uri = path.relative_to(DOCS).with_suffix("")
        naming = {"unique_key": uri.name, "output_files_dir": f"{uri.name}_files"}
        text, extras = MarkdownExporter().from_notebook_node(nbformat.read(path, 4), naming)
        add(f"{uri}.md", text)
        for name, image in extras["outputs"].items():
            add((uri.parent / name).as_posix(), image)
    for module, names in public_names().items():
        entries = "\n".join(f"::: {name}" for name in names)
        summary = (importlib.import_module(module).__doc__ or "").partition("\n")[0]
        add(f"reference/{module}.md", f"# {module}\n\n{summary}\n\n{entries}\n")
    pages = [*(ROOT / name for name in PAGES), *DOCS.rglob("*.md")]
    todo = [
        target
        for page in pages
        for _, link in LINK.findall(page.read_text(encoding="utf-8"))
        if (target := (page.parent / link).resolve()).exists()
    ]
    shown: set[Path] = set()
    while todo:
        path = todo.pop()
        name = path.relative_to(ROOT).as_posix()
        if name in PAGES or path in shown or DOCS in path.parents:
            continue
        shown.add(path)
        if path.is_dir():
            inside = sorted(it for it in path.iterdir() if it.suffix in {".py", ".md"})
            todo += inside
            body = "\n".join(f"* [{it.name}]({path.name}/{it.name}.md)" for it in inside)
        else:
            fence = {".py": "python", ".json": "json"}.get(path.suffix, "text")
            body = f"````{fence}\n{path.read_text(encoding='utf-8')}\n````"
        add(f"{SOURCE}/{name}.md", f"---\nsearch:\n  exclude: true\n---\n# `{name}`\n\n{body}\n")
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of the repository to the pages of the site."""
    uri = page.file.src_uri
    if uri.startswith(f"{SOURCE}/"):
        return markdown
    origin = {page: name for name, page in PAGES.items()}.get(uri, f"docs/{uri}")
    here = (ROOT / origin).parent

    def moved(match: re.Match[str]) -> str:
        target = (here / match[2]).resolve()
        if not target.exists():
            return match[0]
        name = target.relative_to(ROOT).as_posix()
        if name in PAGES:
            place = PAGES[name]
        elif DOCS in target.parents:
            place = target.relative_to(DOCS).as_posix()
            place = place.replace(".ipynb", ".md")
            if target.is_dir():
                place += "/README.md"
        else:
            place = f"{SOURCE}/{name}.md"
        return match[1] + os.path.relpath(place, os.path.dirname(uri) or ".")

    parts = CODE.split(markdown)  # code is at odd positions
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Render formulas, and check that a page of the reference shows all names of its module."""
    module = page.file.src_uri.removeprefix("reference/").removesuffix(".md")
    names = public_names().get(module, [])
    missing = [name for name in names if f'id="{name}"' not in content]
    if missing:  # names without a docstring are not shown
        raise PluginError(f"no documentation of {', '.join(missing)}")
    return FORMULA.sub(rendered, content)


def rendered(formula: re.Match[str]) -> str:
    """A formula of LaTeX as MathML."""
    latex = html.unescape(formula[2])
    if formula[1] == "span":
        return convert(latex)
    limits = re.sub(r"(\\(?:min|max|sup|inf))_", r"\1\\limits_", latex)
    return f'<div class="formula">{convert(limits, display="block")}</div>'
