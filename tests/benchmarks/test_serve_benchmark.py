"""The benchmark of the server runs, and counts what its visitors met."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.conftest import BENCHMARKS
from search.small_index import small_model, write_pictures
from sumpool.search import Index

pytest.importorskip("faiss")

KINDS = {
    *("first page", "thumbnail", "indexed image", "part of an image", "upload", "uploaded image"),
    *("why two match", "JSON search"),
}


def test_requests_and_errors_of_all_visitors_are_counted(
    load: Callable[[str], ModuleType],
) -> None:
    serve = load("serve")
    client: Any = None
    one, other = (serve.Visitor(client, seed, {}, []) for seed in range(2))
    one.seconds["upload"] += [1.0, 3.0]
    other.seconds["upload"] += [2.0]
    other.errors.append("upload: 503")
    found = serve.summary([one, other], 6.0)
    assert (found["requests"], found["per_second"]) == (3, 0.5)
    assert found["errors"] == ["upload: 503"]
    assert found["kinds"]["upload"]["median_s"] == 2.0
    assert "| upload | 3 | 2.00 | 2.00 | 3.00 |" in serve.table(found)


@pytest.mark.process
def test_a_run_visits_every_kind_of_page_without_an_error(tmp_path: Path) -> None:
    write_pictures(tmp_path / "photos", 6)
    Index.build(tmp_path / "photos", tmp_path / "index", small_model(), progress=False)
    out = tmp_path / "out"
    script = str(BENCHMARKS / "serve.py")
    command = [sys.executable, script, str(tmp_path / "index"), "--out", str(out), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["errors"] == []
    assert set(results["kinds"]) == KINDS
    assert results["exit_status"] == 0
    assert results["peak_bytes"] > 0
    assert (out / "table.md").read_text(encoding="utf-8").count("\n") == 2 + len(KINDS)
