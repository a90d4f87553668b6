"""The command: it runs, resumes, teaches, and refuses what it does not know."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from sumpool.cli import embed, evaluate, index, main, pretrain, study
from sumpool.studies import cells, page
from sumpool.studies.catalog import STUDIES
from sumpool.studies.shared.study import sole_writer
from sumpool.studies.tokens import experiment as tokens
from sumpool.studies.toy import experiment as toy
from sumpool.system.rows import read_rows

TINY = {"epoch_batches": 2, "max_epochs": 2, "validation_per_class": 4, "test_per_class": 8}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tokens, "QUICK", TINY)
    monkeypatch.setattr(cells, "usable_cores", lambda: 1)  # in this process
    monkeypatch.chdir(tmp_path)


@pytest.mark.process
def test_a_study_runs_resumes_and_is_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs" / "toy-quick"
    assert main(["study", "toy", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert "GAP" in printed
    assert "page: runs/toy-quick/report.html" in printed
    assert "| pooling |" in (out / "tables.md").read_text(encoding="utf-8")
    assert (out / "figure-1.png").read_bytes().startswith(b"\x89PNG")
    rows = (out / "rows.jsonl").read_bytes()
    assert main(["study", "toy", "--quick"]) == 0
    assert (out / "rows.jsonl").read_bytes() == rows
    assert capsys.readouterr().out == printed
    before = (out / "report.html").read_text(encoding="utf-8")
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    after = (out / "report.html").read_text(encoding="utf-8")
    assert before.count("data:image/png") == after.count("data:image/png") > 0
    assert main(["report", str(out), str(tmp_path)]) == 1
    assert "a page shows either runs or studies" in capsys.readouterr().err


@pytest.mark.process
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


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies without their figures and pages, which cost most of the time."""
    monkeypatch.setattr(page, "write_files", lambda *_: None)
    monkeypatch.setattr(page, "write_page", lambda folders, path, title: path)


@pytest.mark.usefixtures("_undrawn")
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


@pytest.mark.parametrize("command", ["study toy", "study all", "demo"])
def test_one_process_at_a_time_runs_a_study_into_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with sole_writer(tmp_path / "there"):
        assert main([*command.split(), "--quick", "--out", "there"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sumpool: error: there is in use: process {os.getpid()} on ")
    assert line.endswith("wait for its end, or choose another --out")
    assert [it.name for it in (tmp_path / "there").iterdir()] == [".lock"]


def test_interrupt_before_the_first_cell_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(toy, "pooling_weights", interrupted)
    assert main(["study", "toy", "--quick"]) == 130
    assert "no cell was finished" in capsys.readouterr().err


def test_rows_that_are_damaged_do_not_hide_an_interrupt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(toy, "pooling_weights", interrupted)
    (tmp_path / "runs" / "toy-quick" / "old").mkdir(parents=True)
    (tmp_path / "runs" / "toy-quick" / "old" / "rows.jsonl").write_text("garbage\n{}\n")
    assert main(["study", "toy", "--quick"]) == 130
    assert "interrupted; no cell was finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        (
            index,
            ["index", "--data", ".", "--out", "i"],
            "no image was embedded yet; the same command starts again",
        ),
        (
            pretrain,
            ["pretrain", "--data", "a", "--out", "b"],
            "the same command resumes after the last complete epoch kept in b, if any",
        ),
        (
            embed,
            ["embed", "a", "--data", "b", "--out", "c.npy"],
            "unwritten results are lost",
        ),
        (evaluate, ["evaluate", "a", "--data", "b"], "unwritten results are lost"),
    ],
)
def test_interrupt_claims_nothing_that_is_untrue(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: ModuleType,
    words: list[str],
    said: str,
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "run", interrupted)
    assert main(words) == 130
    assert capsys.readouterr().err == f"\nsumpool: interrupted; {said}\n"


def test_an_interrupted_index_is_resumed_with_its_store(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "run", Mock(side_effect=KeyboardInterrupt))
    Path("i").mkdir()
    Path("i/index.json").touch()
    assert main(["index", "--data", ".", "--out", "i", "--store", "hnsw"]) == 130
    said = capsys.readouterr().err
    assert said.endswith("resume with: sumpool index i --update --store hnsw\n")


@pytest.mark.usefixtures("_undrawn")
def test_results_of_another_configuration_are_refused_until_forced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["study", "tokens", "--quick", "--out", "a"]) == 0
    monkeypatch.setattr(tokens, "QUICK", {**TINY, "max_epochs": 1})
    assert main(["study", "tokens", "--quick", "--out", "a"]) == 1
    assert "error: a holds results of another configuration" in capsys.readouterr().err
    assert main(["study", "tokens", "--quick", "--out", "a", "--force"]) == 0


@pytest.fixture
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two studies in place of all."""
    cheap = {name: STUDIES[name] for name in ("toy", "tokens")}
    monkeypatch.setattr(study, "STUDIES", cheap)


@pytest.mark.process
@pytest.mark.usefixtures("_cheap")
def test_all_runs_every_study_into_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "all", "--quick"]) == 0
    out = tmp_path / "runs" / "all-quick"
    assert {row.study for row in read_rows(out / "toy")} == {"toy"}
    assert {row.study for row in read_rows(out / "tokens")} == {"tokens"}
    page = (out / "report.html").read_text()
    assert page.index("Which pixels are pooled") < page.index("Learning tokens through a pooling")
    printed = capsys.readouterr().out
    assert "Toy map" in printed
    assert "Learned tokens" in printed
    assert printed.rstrip().endswith("page: runs/all-quick/report.html")


@pytest.mark.process
@pytest.mark.usefixtures("_cheap")
def test_a_study_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise ArithmeticError("no weights today")

    monkeypatch.setattr(toy, "pooling_weights", broken)
    assert main(["study", "all", "--quick", "--out", "a"]) == 1
    captured = capsys.readouterr()
    assert "error: study toy: ArithmeticError: no weights today" in captured.err
    assert "in broken" in captured.err  # the traceback, since nobody expected it
    assert "1 of 2 studies failed: toy" in captured.err
    page = (tmp_path / "a" / "report.html").read_text()
    assert "Learning tokens through a pooling" in page
    assert "Which pixels are pooled" not in page


@pytest.mark.usefixtures("_cheap", "_undrawn")
def test_an_interrupt_ends_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokens, "run", interrupted)
    assert main(["study", "all", "--quick", "--out", "a"]) == 130
    assert "finished cells are kept in a" in capsys.readouterr().err
    assert not (tmp_path / "a" / "report.html").exists()


@pytest.mark.usefixtures("_undrawn")
def test_data_and_jobs_go_to_the_studies_that_take_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = toy.run, []

    def with_options(
        out_dir: Path, *, data: Path | None = None, jobs: int | None = None, **options: Any
    ) -> object:
        seen.append((data, jobs))
        return run(out_dir, **options)

    monkeypatch.setattr(toy, "run", with_options)
    monkeypatch.setattr(study, "STUDIES", {name: STUDIES[name] for name in ("toy", "tokens")})
    assert main(["study", "toy", "--quick", "--data", "d", "--jobs", "2", "--out", "a"]) == 0
    assert main(["study", "toy", "--quick", "--out", "a"]) == 0
    assert main(["study", "all", "--quick", "--jobs", "3", "--out", "b"]) == 0
    assert seen == [(Path("d"), 2), (None, None), (None, 3)]
    capsys.readouterr()
    assert main(["study", "tokens", "--quick", "--jobs", "3"]) == 1
    assert "the study tokens does not accept --jobs; these do: toy" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("_cheap")
@pytest.mark.parametrize("name", ["toy", "all"])
def test_an_option_that_nothing_takes_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", name, "--quick", "--data", "d"]) == 1
    assert (
        f"error: the study {name} does not accept --data; no study does" in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["study", "cub"], "NAME must be one of glyphs, toy, tokens, margins"),
        (["study", "toy", "--fast"], "unknown option --fast"),
        (["study", "toy", "--seeds", "0"], "must be a whole number of at least 1, got '0'"),
        (["study", "toy", "--seeds", "1" + 20 * "0"], "must be at most 2,147,483,647, got 1000"),
        (["study", "toy", "--jobs", "0"], "must be a whole number of at least 1, got '0'"),
        (["study", "toy", "--seeds", "two"], "must be a whole number of at least 1, got 'two'"),
        (["study"], "is missing"),
        (["fly"], "fly"),
        ([], "VERB is missing"),
    ],
)
def test_what_is_not_understood_is_an_error(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["", "study", "demo", "evaluate", "embed", "export", "report"])
def test_help_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "sumpool study NAME" in text or "examples:\n  sumpool" in text
    assert "null" not in text
    if verb == "study":
        assert all(it.summary in text and it.cost in text for it in STUDIES.values())
        assert "sumpool study all --quick" in text
        assert "--jobs N" in text


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert metadata.version("sumpool") in capsys.readouterr().out


@pytest.mark.process
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


@pytest.mark.process
@pytest.mark.timeout(1200)
def test_all_studies_run_quickly_on_one_page(tmp_path: Path) -> None:
    out = tmp_path / "all"
    assert main(["study", "all", "--quick", "--out", str(out)]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    for name in STUDIES:
        assert (out / name / "rows.jsonl").is_file(), name
    assert page.count("data:image/png") >= len(STUDIES)
