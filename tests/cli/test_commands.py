"""The command: it runs, resumes, teaches, and refuses what it does not know."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from sumpool.cli import main
from sumpool.report.store import read_rows
from sumpool.studies import STUDIES, tokens, toy

TINY = {"epoch_batches": 2, "max_epochs": 2, "validation_per_class": 4, "test_per_class": 8}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tokens, "QUICK", TINY)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["toy", "tokens"])
def test_study_runs_from_end_to_end(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", name, "--quick"]) == 0
    out = tmp_path / "runs" / f"{name}-quick"
    printed = capsys.readouterr().out
    assert "GAP" in printed
    assert f"page: runs/{name}-quick/report.html" in printed
    assert (out / "report.html").is_file()
    rows = (out / "rows.jsonl").read_bytes()
    assert main(["study", name, "--quick"]) == 0
    assert (out / "rows.jsonl").read_bytes() == rows
    assert capsys.readouterr().out == printed


def test_demo_compares_and_writes_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--quick", "--out", "there"]) == 0
    printed = capsys.readouterr().out
    assert "Letters that were never seen, one seed" in printed
    assert "GAP" in printed
    assert "GSP" in printed
    assert printed.rstrip().endswith("page: there/report.html")
    page = (tmp_path / "there" / "report.html").read_text()
    assert "Weights of the pooling" in page
    metrics = {row.cell["method"]: row.metrics for row in read_rows(tmp_path / "there")}
    assert metrics["GAP"]["letter_weight"] == pytest.approx(0.25, abs=1e-6)
    # Nothing is computed again, and a run whose row was lost is not trained again.
    (tmp_path / "there" / "rows.jsonl").write_text("")
    assert main(["demo", "--quick", "--out", "there"]) == 0
    assert capsys.readouterr().out == printed
    assert {row.cell["method"]: row.metrics for row in read_rows(tmp_path / "there")} == metrics
    # The page of the study is drawn from the same results.
    assert main(["study", "glyphs", "--quick", "--out", "there"]) == 0
    assert "A letter among digits" in (tmp_path / "there" / "report.html").read_text()


def test_interrupt_says_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    solve, calls = toy.pooling_weights, []

    def interrupted(*args: object) -> object:
        if len(calls) == 7:
            raise KeyboardInterrupt
        calls.append(args)
        return solve(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(toy, "pooling_weights", interrupted)
    assert main(["study", "toy"]) == 130
    assert "interrupted; 7 finished cells are kept in runs/toy" in capsys.readouterr().err
    assert len(read_rows(tmp_path / "runs" / "toy")) == 7
    monkeypatch.setattr(toy, "pooling_weights", solve)
    assert main(["study", "toy"]) == 0
    assert len(read_rows(tmp_path / "runs" / "toy")) == 25


def test_interrupt_before_the_first_cell_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(toy, "pooling_weights", interrupted)
    assert main(["study", "toy", "--quick"]) == 130
    assert "no cell was finished" in capsys.readouterr().err


def test_results_of_another_configuration_are_refused_until_forced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["study", "tokens", "--quick", "--out", "a"]) == 0
    monkeypatch.setattr(tokens, "QUICK", {**TINY, "max_epochs": 1})
    assert main(["study", "tokens", "--quick", "--out", "a"]) == 1
    assert "error: a holds results of another configuration" in capsys.readouterr().err
    assert main(["study", "tokens", "--quick", "--out", "a", "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["study", "cub"], "choose from 'glyphs', 'toy', 'tokens', 'margins'"),
        (["study", "toy", "--fast"], "unrecognized arguments: --fast"),
        (["study", "toy", "--seeds", "0"], "must be a whole number of at least 1, got '0'"),
        (["study", "toy", "--seeds", "two"], "must be a whole number of at least 1, got 'two'"),
        (["study"], "required"),
        (["fly"], "fly"),
        ([], "one of {demo,train,evaluate"),
    ],
)
def test_what_is_not_understood_is_an_error(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["", "study", "demo", "evaluate", "embed", "report"])
def test_help_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "sumpool study NAME" in text or "examples:\n  sumpool" in text
    assert "null" not in text
    if verb == "study":
        assert all(study.summary in text and study.cost in text for study in STUDIES.values())


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert metadata.version("sumpool") in capsys.readouterr().out


def test_help_needs_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'matplotlib'): sys.modules[name] = None\n"
        "from sumpool.cli import main\n"
        "main(['train', '--help'])\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
