"""The site builds with warnings as errors, and the notebooks run from top to bottom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
#: Most bytes of a notebook with its pictures.
LARGEST = 250_000
#: Pages that do not lie in docs/, or that the hook makes.
MADE = {
    "index.html",
    "CONTRIBUTING.html",
    "notebooks/photos.html",
    "reference/sumpool.pooling.html",
    "results/glyphs/index.html",
    "source/tests/test_architecture.py.html",
}


def test_notebooks_are_small_and_show_neither_errors_nor_warnings() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["photos", "prototype", "timm"]
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < LARGEST, path.name
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        runs = [cell["execution_count"] for cell in cells]
        assert runs == [*range(1, len(cells) + 1)], path.name
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert {output.get("name", "stdout") for output in outputs} <= {"stdout"}, path.name
        assert "error" not in {output["output_type"] for output in outputs}, path.name


@pytest.mark.process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nbconvert", "--to=notebook", "--execute"]
    limits = ["--ExecutePreprocessor.startup_timeout=300", "--ExecutePreprocessor.timeout=300"]
    run(tmp_path, *command, *limits, f"--output-dir={tmp_path}", str(path))
    assert (tmp_path / path.name).is_file()


@pytest.mark.process
def test_the_site_builds_with_warnings_as_errors(tmp_path: Path) -> None:
    run(ROOT, sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}")
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert pages >= MADE
    derivation = (tmp_path / "derivation.html").read_text(encoding="utf-8")
    assert derivation.count("<math") > 100
    assert "arithmatex" not in derivation
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    loaded = [it for it in start.split('"') if it.endswith((".js", ".css", ".png"))]
    assert loaded
    assert [it for it in loaded if it.startswith("http")] == []


def run(folder: Path, *command: str) -> None:
    own = {"NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **own}
    environment.pop("MPLBACKEND", None)  # notebooks choose theirs
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
