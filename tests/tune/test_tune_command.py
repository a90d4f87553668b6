"""The command: what it refuses, prints and writes, and that a kill loses no finished trial."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from sumpool.cli import main, tune
from sumpool.tune.store import DATABASE, TuneStore

SMALL = (
    *("--format", "glyphs", "--backbone", "small_cnn", "--embedding-size", "16"),
    *("--resize", "32", "--crop", "32", "--batch-size", "16", "--gsp.prototypes", "8"),
    *("--stop.validate-every", "10", "--stop.max-steps", "20", "--hardware.accelerator", "cpu"),
)
VARY = ("--vary", "optimizer.lr=1e-4..1e-2:log", "pool=gap,gsp")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--trials", "2"), "out is missing: name a folder for the search with --out"),
        (("--out", "o"), "the end of the search is missing: give --trials N, --minutes N or both"),
        (("--out", "o", "--trials", "0"), "must be a whole number of at least 1, got '0'"),
        (("--out", "o", "--minutes", "-1"), "must be a positive number, got '-1'"),
        (("--out", "o", "--trials", "2", "--vary", "lr=1..2"), "close ones are optimizer.lr"),
        (("--out", "o", "--trials", "2", "--data", "x", "--loss", "c4"), "did you mean c2?"),
        (("--out", "o", "--trials", "2", "--data", "x"), "the data folder x does not exist"),
        (("--out", "o", "--trials", "2"), "data is missing: name a folder"),
    ],
)
def test_an_error_is_one_line(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["tune", *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    said = capsys.readouterr().err
    assert status in (1, 2)
    assert complaint in said
    assert said.count("\n") == 1


@pytest.mark.process
def test_eight_trials_on_glyphs_beat_the_default_or_say_that_they_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *SMALL, *VARY, "--trials", "8", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    best = json.loads((tmp_path / "best.json").read_text())
    assert best["trials"] == 8
    assert best["gain"] == pytest.approx(best["validation"] - best["default_validation"])
    if best["gain"] > 0:
        assert f"Trial {best['trial']} beats the default by" in printed
    else:
        assert "No trial beats the default" in printed
    assert best["command"] in printed
    assert best["command"] in (tmp_path / "report.html").read_text()
    # The command trains, and reaches the score that the search found.
    words = shlex.split(best["command"])[1:]
    assert (
        main([*words, "--test", "false", "--gallery", "false", "--out", str(tmp_path / "run")]) == 0
    )
    metrics = json.loads((tmp_path / "run/evaluation/validation/metrics.json").read_text())
    assert metrics[best["monitor"]] == pytest.approx(best["validation"])


@pytest.mark.process
def test_a_search_around_a_run_leaves_the_run_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, study = tmp_path / "run", tmp_path / "study"
    assert main(["train", *SMALL, "--gsp.mu", "0.5", "--gallery", "false", "--out", str(run)]) == 0
    page = (run / "report.html").read_bytes()
    given = ["tune", "--config", str(run / "config.yaml"), "--trials", "1"]
    given += ["--vary", "optimizer.lr=1e-4..1e-2:log"]
    capsys.readouterr()
    assert main(given) == 1
    assert "out is missing" in capsys.readouterr().err
    assert main([*given, "--out", str(run)]) == 1
    assert "holds a run" in capsys.readouterr().err
    assert main([*given, "--out", str(study)]) == 0
    assert (run / "report.html").read_bytes() == page
    assert TuneStore(study).config.gsp.mu == 0.5


def test_the_file_of_a_search_may_limit_its_time_and_name_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(tune, "run", lambda options: seen.append(options) or 0)
    file = tmp_path / "search.yaml"
    file.write_text("format: glyphs\nout: study\nminutes: 5\nvary:\n- pool=gap,gsp\n")
    assert main(["tune", "--config", str(file)]) == 0
    assert (seen[0].out, seen[0].minutes, seen[0].vary) == ("study", 5.0, ["pool=gap,gsp"])
    file.write_text("format: glyphs\nout: run\nminutes: 5\npool: gap\ngsp:\n  mu: 0.7\n")
    typed = ["--gsp.prototypes", "9", "--trials", "1"]
    assert main(["tune", "--config", str(file), *typed]) == 0
    assert (seen[1].out, seen[1].minutes, seen[1].pool) == (None, None, "gap")
    assert (seen[1].gsp.mu, seen[1].gsp.prototypes) == (None, 9)


@pytest.mark.process
def test_a_killed_search_continues_without_losing_a_trial(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sumpool", "tune", *SMALL, *VARY]
    command += ["--trials", "5", "--jobs", "2", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        while not _any_complete(tmp_path / DATABASE):
            assert first.poll() is None
            time.sleep(0.5)
        kept = _finished(tmp_path)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "5 trials: " in done.stdout
    after = _finished(tmp_path)
    assert len(after) == 5
    assert kept.items() <= after.items()


@pytest.mark.process
@pytest.mark.xdist_group("ray")
def test_trials_run_on_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'sumpool[ray]'")
    command = [sys.executable, "-m", "sumpool", "tune", *SMALL, *VARY, "--trials", "2"]
    command += ["--ray", "local", "--out", str(tmp_path)]
    # Not pytest's folder: the names of sockets in it may have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 trials: 2 complete" in done.stdout
    assert len(_finished(tmp_path)) == 2


def _any_complete(database: Path) -> bool:
    """Whether a trial is complete; unlike Optuna, it makes no table that is not there yet."""
    query = "SELECT count(*) FROM trials WHERE state = 'COMPLETE'"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
            return bool(opened.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return False


def _finished(folder: Path) -> dict[int, float | None]:
    """Scores of the finished trials by number."""
    return {it.number: it.score for it in TuneStore(folder).trials() if it.finished}
