"""The benchmark of many runs on a GPU runs, here on cores, and says what could not run."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture(scope="module")
def parallelism(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("parallelism")


def results(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    settings = {"pool": "gsp", "rounds": 3, "seconds": 1.5, "steps": 6000}
    return {
        "machine": {"device_name": "a GPU", "cores": 16, "torch": "2.11"},
        "date": "2026-11-15",
        "settings": settings,
        "left_out": [],
        "rows": rows,
    } | more


def row(way: str, mps: bool, processes: int, *speeds: float) -> dict[str, Any]:
    return {"way": way, "mps": mps, "processes": processes, "steps_per_second": list(speeds)}


@pytest.mark.process
@pytest.mark.skipif(torch.cuda.is_available(), reason="for cores")
def test_a_run_stores_steps_a_second_of_each_count(parallelism: ModuleType, tmp_path: Path) -> None:
    options = ["--data", "glyphs", "--processes", "1", "2", "--seconds", "0.3", "--rounds", "2"]
    with contextlib.redirect_stdout(io.StringIO()):
        parallelism.main([*options, "--warmup", "5", "--out", str(tmp_path)])
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [(it["way"], it["mps"], it["processes"]) for it in stored["rows"]] == [
        ("eager", False, 1),
        ("eager", False, 2),
    ]
    for it in stored["rows"]:
        assert len(it["steps_per_second"]) == 2
        assert min(it["steps_per_second"]) > 0
    assert stored["left_out"] == []
    assert stored["machine"]["device"] == "cpu"
    assert "| eager | no | 2 |" in (tmp_path / "table.md").read_text()


@pytest.mark.process
def test_a_process_that_fails_says_why(parallelism: ModuleType, tmp_path: Path) -> None:
    options = {"data": "glyphs", "pool": "gap", "warmup": 5, "threads": 1, "cache_dir": None}
    with parallelism.Group(1, options, tmp_path) as group:
        group.loaded()
        with pytest.raises(parallelism.GroupError, match="precision"):
            group.build({"precision": "7-bit"})
        # It continues all the same.
        group.build({})
        assert group.run(1, 0.2)[0] > 0
    wrong = {**options, "data": str(tmp_path / "none")}
    with (
        parallelism.Group(1, wrong, tmp_path) as group,
        pytest.raises(parallelism.GroupError, match="none"),
    ):
        group.loaded()


def test_ratios_are_taken_to_one_run_without_the_service(parallelism: ModuleType) -> None:
    rows = [
        row("eager", False, 1, 40.0, 30.0, 50.0),
        row("step", False, 1, 60.0),
        row("step", True, 1, 55.0),
        row("step", True, 16, 240.0) | {"used_bytes_a_process": 5.5e9},
    ]
    table = parallelism.markdown(results(rows, left_out=["graph with MPS: no time left"]))
    assert "| eager | no | 1 | 40.0 | 1.00 | 0.67 | 24.0 |  |" in table
    assert "| step | yes | 1 | 55.0 | 1.38 | 0.92 | 33.0 |  |" in table
    assert "| step | yes | 16 | **240.0** | 6.00 | 4.00 | 144.0 | 5.5 |" in table
    assert table.endswith("* Left out: graph with MPS: no time left\n")


def test_every_mode_is_measured_somewhere_and_the_main_one_everywhere(
    parallelism: ModuleType,
) -> None:
    counts = [1, 2, 4, 8, 12, 16]
    args = argparse.Namespace(processes=counts, modes=list(parallelism.MODES), mps=[False, True])
    without, with_service = (dict(modes) for _, modes in parallelism.plan(args, cuda=True))
    assert set(with_service) == set(parallelism.MODES)
    assert set(list(with_service)[:2]) == set(parallelism.MAIN)  # before time can end
    assert set(without) == {"eager", "eager bf16", "step", "step bf16"}
    assert without["step"] == with_service["step"] == counts
    assert with_service["graph"] == [1, 8, 16]
    assert list(parallelism.plan(args, cuda=False)) == [(False, [("eager", counts)])]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "glyphs", "--modes", "magic"], "invalid choice: 'magic'"),
        (["--data", "glyphs", "--mps", "maybe"], "must be on or off, got 'maybe'"),
        (["--data", "glyphs", "--processes", "0"], "--processes and --rounds must be at least 1"),
        (["--processes", "1"], "--data"),
    ],
)
def test_unusable_arguments_are_refused(
    parallelism: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    with pytest.raises(SystemExit):
        parallelism.main(arguments)
    assert complaint in capsys.readouterr().err
