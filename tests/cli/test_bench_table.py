from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from jsonargparse import ArgumentParser

from bench.made_up_scores import GAIN, GSP, LITE, SCORE, moved_scores
from sumpool.bench.planned_cells import GRID, PlannedCell
from sumpool.bench.report.scores import SCORES, Incomplete, write_scores
from sumpool.cli.bench_table import add_recipe_options, add_table_options, run_table
from sumpool.system.files import StoreError, write_atomic


@pytest.fixture
def store(tmp_path: Path) -> Path:
    scores = [SCORE, GSP, *moved_scores("5.2a", ("cub",), 0.0, count=1)]
    waiting = Incomplete("fair", "cub", LITE, "ms", "gap", 3, 12)
    write_scores(tmp_path / "bench" / SCORES, scores, [GAIN], [waiting])
    return tmp_path / "bench"


def table(*arguments: str | Path) -> int:
    parser = ArgumentParser(exit_on_error=False)
    add_table_options(parser)
    return run_table(parser.parse_args([str(it) for it in arguments]))


def test_markdown_is_printed_and_figures_are_written_beside(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table("--out", store) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith("Fair protocol; EfficientNet-Lite0: percent")
    assert "missing: MS, GAP on CUB, 3 of 12 runs finished" in lines[0]
    assert "| ↳ published (5.1) | 20.58 ± 0.13 |" in lines
    assert "| C2, GSP + ZS | **21.00 ± 1.00** |" in lines
    assert sum("selected on the test set" in line for line in lines) == 1
    assert any(line.startswith("| C2: GSP + ZS over GAP | CUB |") for line in lines)
    figures = sorted(path.name for path in store.glob("*.png"))
    assert figures == [
        f"improvement-conventional-{LITE}-512.png",
        f"improvement-fair-{LITE}-128.png",
    ]
    assert all(str(store / name) in said.err for name in figures)


def test_latex_goes_to_a_file_with_its_figures(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "paper" / "table.tex"
    assert table("--out", store, "--format", "latex", "--file", file, "--protocol", "fair") == 0
    text = file.read_text(encoding="utf-8")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert "Conventional" not in text
    assert [path.name for path in file.parent.iterdir() if path != file] == [
        f"improvement-fair-{LITE}-128.png"
    ]
    assert not list(store.glob("*.png"))
    assert capsys.readouterr().out == f"table: {file}\n"


def test_a_page_has_its_figures_inside(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table("--out", store, "--format", "html") == 0
    page = capsys.readouterr().out
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    assert page.count("<img ") == 2
    assert not list(store.glob("*.png"))


def test_the_same_call_gives_the_same_bytes(store: Path) -> None:
    texts = []
    for name in ("one.md", "two.md"):
        table("--out", store, "--file", store / name)
        texts.append((store / name).read_bytes())
    assert texts[0] == texts[1]


def test_other_metrics_can_be_asked_for(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scores(store / SCORES, [SCORE, replace(SCORE, metric="r_precision", mean=0.3)])
    table("--out", store, "--metric", "r_precision")
    assert "| C2, GAP | 30.00 ± 1.00 |" in capsys.readouterr().out
    with pytest.raises(
        StoreError, match="one of mean_average_precision_at_r, r_precision, got recall"
    ):
        table("--out", store, "--metric", "recall")


def test_a_store_without_scores_is_refused_by_name(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere holds no benchmark: it has neither a grid nor"):
        table("--out", tmp_path / "nowhere")
    cell = ["fair", "cub", LITE, "c2", "gap", "1a", "one", "g", 1, 0, {}]
    names = [field.name for field in fields(PlannedCell)]
    begun = tmp_path / "begun"
    write_atomic(
        begun / GRID, json.dumps({"cells": [dict(zip(names, cell, strict=True))]}).encode()
    )
    with pytest.raises(StoreError, match="begun has no scores yet: no run of a protocol is"):
        table("--out", begun)
    with pytest.raises(StoreError, match=r"one of conventional, fair, which .* got tuning"):
        table("--out", store, "--protocol", "fair", "tuning")
    write_scores(store / SCORES, [])
    with pytest.raises(StoreError, match="has no scores yet"):
        table("--out", store)


def test_a_store_of_unfinished_groups_alone_has_a_table_of_missing_numbers(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scores(store / SCORES, [], [], [Incomplete("fair", "cub", LITE, "c2", "gap", 0, 12)])
    assert table("--out", store) == 0
    said = capsys.readouterr()
    assert "0 of 12 runs finished" in said.out
    assert "figure" not in said.err


def test_the_help_names_what_is_written() -> None:
    for add, word in ((add_table_options, "published"), (add_recipe_options, "recipes")):
        parser = ArgumentParser()
        add(parser)
        assert word in parser.format_help()
