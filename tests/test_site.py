"""The site builds with warnings as errors, and the notebooks run from top to bottom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
#: Most bytes of a notebook with its pictures.
LARGEST = 250_000


def test_notebooks_are_small_and_hold_no_paths_of_a_machine() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["photos", "prototype", "timm"]
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < LARGEST, path.name
        assert "/tmp/" not in text, path.name
        assert "/home/" not in text, path.name
        errors = [it for cell in json.loads(text)["cells"] for it in cell.get("outputs", [])]
        assert "error" not in {it["output_type"] for it in errors}


@pytest.mark.process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(nbformat.read(path, 4), timeout=300, resources=resources).execute()


@pytest.mark.process
def test_the_site_builds_with_warnings_as_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {
        "index.html",
        "CONTRIBUTING.html",
        "notebooks/photos.html",
        "reference/sumpool.pooling.html",
        "results/glyphs/index.html",
        "source/tests/test_architecture.py.html",
    } <= pages
    derivation = (tmp_path / "derivation.html").read_text(encoding="utf-8")
    assert derivation.count("<math") > 100
    assert "arithmatex" not in derivation
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not [
        it for it in start.split('"') if it.startswith("http") and it.endswith((".js", ".css"))
    ]
