"""The benchmark of chance-constrained proxies: what it counts, and that it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_memory_is_that_of_proxies_and_of_one_copy_of_the_weights(
    load: Callable[[str], ModuleType],
) -> None:
    found = load("ccp").memory("cub", "small_cnn")
    assert found["proxies"] == 100 * 8 * 128 * 4
    assert found["weights"] % 4 == 0
    assert found["weights"] > 0


@pytest.mark.process  # no process, but steps of networks
def test_a_small_run_writes_its_table(load: Callable[[str], ModuleType], tmp_path: Path) -> None:
    small = ["--sets", "cub", "--backbone", "small_cnn", "--side", "32"]
    load("ccp").main([*small, "--rounds", "2", "--seconds", "0.01", "--out", str(tmp_path)])
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {name: len(times) for name, times in row["ms"].items()} == {
        "base": 2,
        "ccp": 2,
        "draw": 2,
    }
    assert "| cub |" in (tmp_path / "table.md").read_text()
