"""What is installed and shipped: nothing that is needed is left to chance."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from test_architecture import imported_names

ROOT = Path(__file__).resolve().parents[1]
#: Of extras that may be absent, and whose modules tell nothing then: their names on an index.
EXTRAS = {"faiss": "faiss-cpu", "optuna": "optuna", "ray": "ray"}
#: Comes with torch where there is a GPU, and is imported only there.
WITH_TORCH = {"triton"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def normal(name: str) -> str:
    """A distribution's name as an index compares it, without extras and bounds."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


def declared(project: dict[str, Any]) -> set[str]:
    """Every distribution that is asked for, in an extra or not."""
    asked = [project["project"]["dependencies"]]
    asked += project["project"]["optional-dependencies"].values()
    return {normal(name) for names in asked for name in names}


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {normal(line) for line in lines if line and not line.startswith("#")}


def test_what_the_package_imports_is_declared(project: dict[str, Any]) -> None:
    found = {module: names[0] for module, names in packages_distributions().items()}
    modules = {
        name.split(".")[0]
        for path in (ROOT / "src").rglob("*.py")
        for _, name in imported_names(path, path.relative_to(ROOT / "src").parent.parts)
    }
    others = modules - set(sys.stdlib_module_names) - WITH_TORCH - {"sumpool"}
    imported = {normal(EXTRAS.get(name) or found[name]) for name in others}
    assert imported - declared(project) == set()


def test_what_the_package_needs_is_pinned(project: dict[str, Any]) -> None:
    needed = {normal(name) for name in project["project"]["dependencies"]}
    assert needed - pinned() == set()


def test_folders_that_tests_and_make_use_are_shipped(project: dict[str, Any]) -> None:
    shipped = set(project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    assert {"src", "tests", "docs", "benchmarks", "Makefile", "constraints.txt"} <= shipped
