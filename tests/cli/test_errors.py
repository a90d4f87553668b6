"""Whatever the outside world does, a command ends with one line that says what and where."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sumpool.centers import REGULARIZERS
from sumpool.cli import main, report
from sumpool.cli.entry import _OneLine
from sumpool.cli.options import normalize_arguments
from sumpool.data import DATASETS
from sumpool.losses import LOSSES
from sumpool.models import BACKBONES
from sumpool.pooling import POOLINGS
from sumpool.training.config import ConfigError
from sumpool.training.values.choices import BACKBONES as OWN
from sumpool.training.values.choices import CHOICES, check_choices, timm_models


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the command ends."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    lines = capsys.readouterr().err.splitlines()
    assert status in (1, 2)
    assert len(lines) == 1, lines
    return lines[0].removeprefix("sumpool: error: ")


def test_a_name_cannot_end_the_line_of_a_warning() -> None:
    name = "a\nsumpool: error: disk full\x1b[31m"
    record = logging.LogRecord("sumpool", logging.WARNING, "", 0, "skipped %s", (name,), None)
    line = _OneLine("sumpool: %(message)s").format(record)
    assert line == r"sumpool: skipped a\nsumpool: error: disk full\x1b[31m"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device;"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied;"),
        (OSError(errno.EROFS, "Read-only file system", b"a/b"), "a/b: Read-only file system;"),
        (MemoryError(), "lower the batch size"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "lower the batch size"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not UTF-8"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deep"),
        (ConfigError("two\nlines"), "two lines"),
        (ConfigError("a  folder"), "a  folder"),
        (UnicodeError("two\nlines \x1b[31m"), r"two lines \x1b[31m"),
        (ConfigError("the class \x1b[31mred"), r"the class \x1b[31mred"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a\nb"), r"a\nb: No such file"),
    ],
)
def test_what_the_world_can_cause_is_one_line_and_debug_shows_the_traceback(
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(options: Any) -> int:
        raise error

    monkeypatch.setattr(report, "run", fail)
    assert words in complaint(["report", "x"], capsys)
    with pytest.raises(type(error)):
        main(["report", "x", "--debug"])


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "run", lambda options: [][1])
    with pytest.raises(IndexError):
        main(["report", "x"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train --lr 1", "unknown option --lr: did you mean --optimizer.lr?"),
        ("train --max-steps 1", "unknown option --max-steps: did you mean --stop.max-steps?"),
        ("train --batch-size abc", "--batch-size must be a whole number, got abc"),
        ("train --batch_size abc", "--batch_size must be a whole number, got abc"),
        ("train --optimizer.lr x", "--optimizer.lr must be a number or null, got x"),
        ("train --cache disk", "--cache must be none or ram or gpu, got disk"),
        ("train --data", "--data: a value is missing"),
        ("train --loss c4 --data .", "loss must be one of c1, c2"),
        ("train --pool gps --data .", "did you mean gsp?"),
        ("train --backbone resnet5O --data .", "did you mean resnet50"),
        ("train --data nowhere", "the data folder nowhere does not exist"),
        ("train", "data is missing: name a folder or CSV file with --data"),
        ("evaluate m --data nowhere", "the data folder nowhere does not exist"),
        ("embed m --data . --format cup --out a.npy", "did you mean cub?"),
        ("embed m --data . --out a.npy --batch-size 0", "--batch-size: must be a whole number"),
        ("train .", "unknown argument .: did you mean --data .?"),
        ("train --data . .", "unknown argument ."),
        ("train --los-options=" + 300 * "1", "did you mean --loss-options"),
        ("report . ./", ". is named twice"),
        ("bench fair --data cub --loss c4", "loss must be one of c1, c2"),
        ("bench fair --data glyphs --set stop.patience=x", "stop.patience must be a whole"),
        ("stduy toy", "VERB must be one of demo, train"),
        ("", "VERB is missing: see sumpool --help"),
        ("bench", "ACTION is missing: see sumpool bench --help"),
        ("evaluate m", "--data is missing: see sumpool evaluate --help"),
        ("embed", "MODEL and --data and --out are missing: see sumpool embed --help"),
        ("report", "RUNS is missing: see sumpool report --help"),
        ("search x 1 --threshold nan", "--threshold must be a number, got nan"),
        ("search x -k 2 a.jpg", "unknown argument a.jpg: queries follow INDEX"),
        ("serve x --port=abc", "--port must be a whole number, got abc"),
        ("evaluate m --data . --workers -1", "--workers: must be a whole number of at least 0"),
    ],
)
def test_arguments_are_refused_in_our_words_and_their_spelling(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = complaint(arguments.split(), capsys)
    assert words in line
    assert "class" not in line
    assert "Union" not in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["index", "--data", "", "--out", "i"], "--data is empty"),
        (["train", "--data", ".", "--out="], "--out is empty"),
        (["bench", "compare", "b", "--over", " "], "--over is empty"),
        (["search", ""], "the argument after search is empty"),
        (["search", "i", "1", "--threshold", "2"], "--threshold must be from -1 to 1, got 2"),
        (["bench", "recipes", "--backbone", "resnet5O"], "did you mean resnet50"),
        (["bench", "recipes", "--weights", "nope"], "weights must be packaged, none, timm or a fi"),
    ],
)
def test_what_is_empty_or_missing_is_named(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in complaint(arguments, capsys)


def test_what_stands_behind_two_dashes_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(["search", "index", "--", "--my-photo.png"], capsys)
    assert "--my-photo.png" in line or "index is not an index" in line
    typed = ["search", "index", "--top-k", "3", "--", "--my-photo.png", "--debug"]
    assert normalize_arguments(typed, {})[-3:] == ["--", "--my-photo.png", "--debug"]


def test_a_closed_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "run", lambda _: 0)
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["report", "x"]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x\n", "alias, *x"),
        ("[" * 3000, "levels"),
        ("- a\n" * 30_000, "values"),
        ("gsp: 3\n", "gsp"),
        ("- 1\n", "config"),
        ("seed: [1]\n", "run.yaml: --seed must be a whole number"),
        ("optimizer:\n  lr: fast\n", "run.yaml: --optimizer.lr must be a number or null, got fast"),
        ("lossy: c2\n", "run.yaml: unknown option --lossy: did you mean --loss?"),
        ("training:\n  lr: 1\n", "unknown option --training.lr: did you mean --optimizer.lr?"),
        ("{1: 2}\n", ""),
    ],
)
def test_a_configuration_of_another_shape_is_one_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    assert words in complaint(["train", "--data", ".", "--config", str(path)], capsys)


def test_choices_are_those_of_the_catalogs() -> None:
    assert CHOICES["loss"] == tuple(LOSSES)
    assert CHOICES["pool"] == tuple(POOLINGS)
    assert CHOICES["center_reg"] == tuple(REGULARIZERS)
    assert CHOICES["format"] == ("auto", *DATASETS)
    assert tuple(BACKBONES) == OWN


def test_backbones_of_timm_are_found_without_importing_it() -> None:
    import timm

    found = timm_models()
    assert set(timm.list_models()) <= set(found)
    check_choices("backbone", "resnet50", "resnet50.a1_in1k", "small_cnn", None)
    with pytest.raises(ConfigError, match="did you mean"):
        check_choices("backbone", "resnet_50x")


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--loss", "foo"], ["--pool", "foo"], ["--backbone", "foo"]])
def test_choices_are_checked_before_torch_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'timm'): sys.modules[name] = None\n"
        "from sumpool.cli import main\n"
        f"sys.exit(main(['train', '--data', '.', *{arguments!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "must be one of" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_no_longer_than_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(["report", "b" * 100_000], capsys)
    assert " … " in line
    assert len(line) < 1100


def test_a_signal_before_a_verb_begins_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sumpool.cli.entry.build_parser", lambda _: os.kill(os.getpid(), signal.SIGTERM)
    )
    assert main(["report", "run"]) == 143
    assert capsys.readouterr().err.strip() == "sumpool: interrupted"


@pytest.mark.process
@pytest.mark.parametrize("module", ["jsonargparse", "sumpool.cli.train", "torch"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module: str) -> None:
    code = f"""
import importlib.abc, os, signal, sys
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
from sumpool.cli import main
sys.exit(main(["evaluate", "no-model", "--data", "."]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.strip().startswith("sumpool: interrupted")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.process
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    code = f"from sumpool.cli import main; exit(main(['bench', 'recipes', '--out={tmp_path}']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
