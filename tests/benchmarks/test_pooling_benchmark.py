"""The pooling benchmark runs, stores what it says it stores, and its figure redraws from that."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tqdm import tqdm


@pytest.fixture(scope="module")
def modules(load: Callable[[str], ModuleType]) -> dict[str, ModuleType]:
    return {
        name: load(name) for name in ("_cost_figure", "_groups", "_measuring", "_timing", "pooling")
    }


@pytest.fixture(scope="module")
def quick(modules: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        modules["pooling"].main(["--quick", "--device", "cpu", "--out", str(out)])
    assert "| gap-again |" in printed.getvalue()
    return out


@pytest.fixture(scope="module")
def results(quick: Path) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((quick / "results.json").read_text(encoding="utf-8"))
    return stored


def variants_in(results: dict[str, Any], section: str, axis: str | None = None) -> set[str]:
    rows = results["rows"]
    return {r["variant"] for r in rows if r["section"] == section and r["axis"] == axis}


@pytest.mark.process
def test_every_variant_is_measured(results: dict[str, Any]) -> None:
    names = {"gap", "gap-again", "exact", "iterative-2", "iterative-4", "autodiff-2", "autodiff-4"}
    assert variants_in(results, "layer") == names | {"linear-4", "keys"}
    assert variants_in(results, "alone") == names | {"linear-4", "printed-4"}
    for axis in "nmd":
        assert variants_in(results, "growth", axis) == names - {"iterative-2", "autodiff-2"}
    assert {r["k"] for r in results["rows"] if r["axis"] == "k"} == {None, 1, 4, 16}
    assert [r["error"] for r in results["rows"] if r["error"]] == []


@pytest.mark.process
def test_raw_numbers_and_their_origin_are_stored(results: dict[str, Any]) -> None:
    assert results["complete"]
    assert "--quick" in results["command"]
    assert results["machine"]["torch"] == torch.__version__
    assert "float32_matmul_precision" in results["flags"]
    for row in results["rows"]:
        eager = row["eager"]
        assert len(eager["rounds_ms"]) == results["settings"]["rounds"]
        assert all(t > 0 and math.isfinite(t) for t in eager["rounds_ms"])
        low, high = eager["quartiles_ms"]
        assert low <= eager["median_ms"] <= high
        assert row["graph"] is None


@pytest.mark.process
def test_only_autodiff_saves_more_with_more_iterations(results: dict[str, Any]) -> None:
    rows = [r for r in results["rows"] if r["axis"] == "k" and r["k"]]
    saved = {r["variant"]: r["saved_bytes"] for r in rows}
    assert saved["autodiff-1"] < saved["autodiff-4"] < saved["autodiff-16"]
    assert saved["iterative-1"] == saved["iterative-4"] == saved["iterative-16"]


@pytest.mark.process
def test_tables_are_markdown(quick: Path) -> None:
    text = (quick / "table.md").read_text(encoding="utf-8")
    assert "### Pooling alone against k" in text
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert tables
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.mark.process
def test_the_figure_redraws_from_the_stored_numbers_alone(
    quick: Path, tmp_path: Path, modules: dict[str, ModuleType]
) -> None:
    assert (quick / "cost.png").read_bytes().startswith(b"\x89PNG")
    modules["_cost_figure"].draw(quick / "results.json", tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (quick / "cost.png").read_bytes()


@pytest.mark.process
def test_device_measurements_are_drawn_too(
    results: dict[str, Any], tmp_path: Path, modules: dict[str, ModuleType]
) -> None:
    rows = [
        {**row, "graph": row["eager"], "peak_bytes": row["saved_bytes"]} for row in results["rows"]
    ]
    stored = {**results, "rows": rows}
    (tmp_path / "results.json").write_text(json.dumps(stored), encoding="utf-8")
    modules["_cost_figure"].draw(tmp_path / "results.json", tmp_path / "cost.png")
    assert (tmp_path / "cost.png").stat().st_size > 10_000


def test_no_measurement_against_k_is_no_figure(
    tmp_path: Path, modules: dict[str, ModuleType]
) -> None:
    (tmp_path / "results.json").write_text('{"rows": []}', encoding="utf-8")
    with pytest.raises(ValueError, match="no measurement against k"):
        modules["_cost_figure"].draw(tmp_path / "results.json", tmp_path / "cost.png")


def test_a_variant_that_fails_leaves_the_others(modules: dict[str, ModuleType]) -> None:
    groups, measuring, timing = (modules[it] for it in ("_groups", "_measuring", "_timing"))
    cpu = torch.device("cpu")
    plan = groups.Plan(cpu, ["layer"], ["float32"], quick=True, compile="none")
    (group,) = groups.groups_of(plan)
    broken = replace(group, names=["gap", "no-such-pooling", "exact"])
    with tqdm(disable=True) as bar:
        rows = measuring.measure(broken, timing.Clock(cpu, rounds=2, seconds=0.0), bar)
    by = {row["variant"]: row for row in rows}
    assert (
        "ValueError: there is no variant called 'no-such-pooling'"
        in (by["no-such-pooling"]["error"])
    )
    assert by["no-such-pooling"]["eager"] is None
    assert by["gap"]["eager"]["ratio_to_gap"] == 1
    assert by["exact"]["eager"]["ratio_to_gap"] > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sections", "layer,speed"], "--sections: no 'speed', choose from layer, resnet"),
        (["--dtype", "int8"], "--dtype: no 'int8', choose from float32, bfloat16"),
        (["--quick", "--variants", "gap,kees"], "--variants: no 'kees', choose from autodiff"),
        (["--device", "cpu", "--float32", "tf32"], "--float32 tf32 is for --device cuda"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    modules: dict[str, ModuleType],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    with pytest.raises(SystemExit):
        modules["pooling"].main(arguments)
    assert complaint in capsys.readouterr().err
