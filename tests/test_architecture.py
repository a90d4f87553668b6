"""The layers of the package, enforced on its imports (docs/architecture.md)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sources import imported_names, together

pytestmark = together

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "sumpool"

# From the top: a module imports from its own subpackage and from rows strictly below.
LAYERS = (
    ("cli",),
    ("bench", "serve"),
    ("studies", "protocols", "search"),
    ("tune",),
    ("training",),
    ("evaluation", "models"),
    ("pooling", "losses", "centers", "ccp", "data", "report"),
    ("transport", "system"),
)
ROW = {name: row for row, names in enumerate(LAYERS) for name in names}
FORBIDDEN_NAMES = {"utils", "util", "common"}
MOST_LINES = 350
MOST_MODULES = 25
#: Parts of ``studies`` that every study may import; studies do not import each other.
OF_ALL_STUDIES = {"catalog", "cells", "page", "shared"}


def violations(source: Path) -> list[str]:
    """Every breach of the layer table under ``source``, the folder that holds the package."""
    found = []
    top = source / PACKAGE
    for path in sorted(top.rglob("*.py")):
        where = path.relative_to(source)
        dotted = where.with_suffix("").parts  # ("sumpool", "pooling", "gsp")
        if dotted == (PACKAGE, "__main__"):  # python -m sumpool: the command line once more
            continue
        named = {part.strip("_") for part in dotted}
        if named & FORBIDDEN_NAMES:
            found.append(f"{where}: no module may be called {(named & FORBIDDEN_NAMES).pop()}")
        is_root = dotted == (PACKAGE, "__init__")
        owner = None if is_root else dotted[1]
        if owner is not None and owner not in ROW:
            found.append(f"{where}: {owner} is not in the layer table")
            continue
        for line, name in imported_names(path, dotted[:-1]):
            parts = name.split(".")
            if parts[0] != PACKAGE:
                continue
            target = parts[1] if len(parts) > 1 else None
            if is_root:
                if target == "cli":
                    found.append(f"{where}:{line}: the package root imports the command line")
            elif target not in ROW:
                found.append(f"{where}:{line}: imports {name}, which is in no layer")
            elif target != owner and ROW[target] <= ROW[owner]:
                found.append(f"{where}:{line}: {owner} imports {target}, which is not below it")
            elif owner == target == "studies" and (other := foreign_study(dotted, parts)):
                found.append(f"{where}:{line}: the study {dotted[2]} imports the study {other}")
    return found


def foreign_study(dotted: tuple[str, ...], imported: list[str]) -> str | None:
    """The study other than its own that a module of a study imports."""
    own, other = dotted[2], imported[2] if len(imported) > 2 else ""
    free = OF_ALL_STUDIES | {"__init__"}
    is_study = (ROOT / "src" / PACKAGE / "studies" / other).is_dir() or other.endswith("_study")
    return other if own not in free and other not in {own, *free} and is_study else None


def import_graph(source: Path) -> dict[str, set[str]]:
    """Modules of the package, and the modules that each imports when it is itself imported."""
    modules: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        dotted = path.relative_to(source).with_suffix("").parts
        package = dotted[:-1]
        modules[".".join(package if dotted[-1] == "__init__" else dotted)] = (path, package)
    graph = {}
    for module, (path, package) in modules.items():
        names = {name for _, name in imported_names(path, package)}
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in found if name in modules and name != module}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Every group of modules that import each other, directly or not."""
    found: list[list[str]] = []
    place: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:  # Tarjan's strongly connected components
        place[module] = lowest[module] = len(place)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in place:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], place[other])
        if lowest[module] == place[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in place:
            visit(module)
    return found


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_imports_go_down_the_layers_only() -> None:
    assert violations(ROOT / "src") == []


def test_no_circle_of_modules() -> None:
    assert circles(import_graph(ROOT / "src")) == []


def test_no_module_is_too_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "src").rglob("*.py")
    }
    assert {name: count for name, count in lengths.items() if count > MOST_LINES} == {}


def test_no_folder_is_too_full() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py"))
    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}


def test_a_circle_is_caught(tmp_path: Path) -> None:
    files = {
        "data/__init__.py": "from sumpool.data.a import x\n",
        "data/a.py": "def f():\n    from sumpool.data.b import y\n",
        "data/b.py": "from sumpool.data import c\n",
        "data/c.py": "import sumpool.data.a\n",
        "data/d.py": "from sumpool.data.a import x\n",
    }
    names = [f"sumpool.data.{name}" for name in "abc"]
    assert circles(import_graph(tree(tmp_path, files))) == [names]


def test_documented_layers_are_the_enforced_ones() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert block is not None
    rows = [re.split(r"\s{2,}", line.strip())[0] for line in block[1].splitlines() if line.strip()]
    assert tuple(tuple(row.split(" · ")) for row in rows) == LAYERS


def test_a_lawful_tree_has_no_violation(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from sumpool.studies import toy\nfrom . import pooling\n",
        "transport/exact.py": "import torch\nfrom sumpool.transport.validation import check_mu\n",
        "pooling/__init__.py": "from .gsp import Pool\nfrom ..transport import solve\n",
        "pooling/gsp.py": "from sumpool import transport\nfrom sumpool_extras import cli\n",
        "studies/toy.py": "import sumpool.pooling.gsp as gsp\nfrom sumpool.report import table\n",
        "cli/__init__.py": "from sumpool.studies import toy\nfrom sumpool.cli.demo import run\n",
    }
    assert violations(tree(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("transport/a.py", "from sumpool.pooling import Pool", "transport imports pooling"),
        ("transport/a.py", "import sumpool.cli.demo", "transport imports cli"),
        ("pooling/a.py", "from sumpool import losses", "pooling imports losses"),
        ("pooling/a.py", "from sumpool.models import resnet20", "pooling imports models"),
        ("pooling/a.py", "from ..training import loop", "pooling imports training"),
        ("pooling/deep/a.py", "from ... import models", "pooling imports models"),
        ("pooling/__init__.py", "from .. import report", "pooling imports report"),
        ("models/a.py", "def f():\n    from sumpool.studies import toy", "models imports studies"),
        ("studies/a.py", "from sumpool.protocols import fair", "studies imports protocols"),
        ("studies/toy/a.py", "from sumpool.studies.cost import b", "imports the study cost"),
        ("data/a.py", "import sumpool", "which is in no layer"),
        ("data/a.py", "from sumpool import __version__", "which is in no layer"),
        ("__init__.py", "from sumpool.cli import main", "imports the command line"),
        ("extras/__init__.py", "", "extras is not in the layer table"),
        ("helpers.py", "", "helpers is not in the layer table"),
        ("pooling/utils.py", "", "no module may be called utils"),
        ("pooling/_common/a.py", "", "no module may be called common"),
    ],
)
def test_a_violation_is_caught(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (found,) = violations(tree(tmp_path, {name: text}))
    assert complaint in found
