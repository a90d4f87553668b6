"""What is installed and shipped: every dependency is declared and pinned."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import sumpool
from sources import imported_names, together
from sumpool.models import PACKAGED

pytestmark = together

ROOT = Path(__file__).resolve().parents[1]
#: Modules of extras, which may not be installed, and the distributions they belong to.
EXTRAS = {
    "faiss": "faiss-cpu",
    "huggingface_hub": "huggingface-hub",
    "multipart": "python-multipart",
    "optuna": "optuna",
    "pymilvus": "pymilvus",
    "python_multipart": "python-multipart",
    "ray": "ray",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
}
#: Installed with torch where there is a GPU, and imported only there.
WITH_TORCH = {"triton"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def normal(name: str) -> str:
    """The normalized name of a distribution, without extras and bounds."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


def declared(project: dict[str, Any]) -> set[str]:
    """Every distribution that the project requires, in an extra or not."""
    required = [project["project"]["dependencies"]]
    required += project["project"]["optional-dependencies"].values()
    return {normal(name) for names in required for name in names}


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
    assert [name for name in shipped if not (ROOT / name).exists()] == []


def test_the_version_has_a_section_in_the_changelog(project: dict[str, Any]) -> None:
    assert project["project"]["dynamic"] == ["version"]
    assert ROOT / project["tool"]["hatch"]["version"]["path"] == Path(sumpool.__file__)
    section = "Unreleased" if "dev" in sumpool.__version__ else sumpool.__version__
    assert f"## [{section}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


#: Extras that users install; the tools of developers are only pinned.
USED = ("onnx", "hub", "faiss", "search", "milvus", "tune", "ray")


def pins(path: Path) -> dict[str, Version]:
    """Versions by distribution in a file of requirements."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {normal(name): Version(version) for name, version in found}


def test_dependencies_end_before_the_next_major_version_after_the_tested_one(
    project: dict[str, Any],
) -> None:
    tested = pins(ROOT / "constraints.txt")
    extras = project["project"]["optional-dependencies"]
    for line in (
        *project["project"]["dependencies"],
        *(it for name in USED for it in extras[name]),
    ):
        requirement = Requirement(line)
        version = tested[normal(requirement.name)]
        assert requirement.specifier.contains(version), line
        assert f"<{version.major + 1}" in [str(it) for it in requirement.specifier], line


def test_every_pin_has_a_hash_and_no_address() -> None:
    path = ROOT / "requirements-hashed.txt"
    hashed, text = pins(path), path.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert [it for it in blocks if "--hash=sha256:" not in it] == []
    assert len(blocks) == len(hashed)
    tested = pins(ROOT / "constraints.txt")
    assert {name: it for name, it in tested.items() if hashed.get(name) != it} == {}, "make lock"


def test_packaged_weights_have_their_license_in_the_notice(project: dict[str, Any]) -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert "NOTICE" in project["project"]["license-files"]
    for weights in PACKAGED.values():
        assert weights.package in notice
        assert weights.file in notice
    assert "Apache License 2.0" in notice
