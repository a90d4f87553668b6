"""The multi-process service, with a stand-in for NVIDIA's program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sumpool.system.executors import mps
from sumpool.system.executors.mps import CONTROL, LOGS, PIPES, mps_server

#: Keeps a log of what it is asked, and a pipe while it "runs".
STAND_IN = """#!/bin/sh
folder=${CUDA_MPS_PIPE_DIRECTORY:-none}
if [ "$1" = -d ]; then
    echo "start" >> "$JOURNAL"
    [ -z "$BROKEN" ] || { echo "no rights" >&2; exit 1; }
    touch "$folder/control"
    exit 0
fi
read question
echo "$question" >> "$JOURNAL"
[ -e "$folder/control" ] || { echo "Cannot find MPS control daemon process" >&2; exit 1; }
[ "$question" != quit ] || rm "$folder/control"
"""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A machine with a GPU and the stand-in; what the latter was asked."""
    program = tmp_path / "bin" / CONTROL
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    path = tmp_path / "journal"
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("JOURNAL", str(path))
    for name in (PIPES, LOGS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mps, "DEFAULT_PIPES", tmp_path / "nothing here")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return lambda: path.read_text().splitlines() if path.exists() else []


def test_it_is_started_named_to_children_and_ended(journal: Callable[[], list[str]]) -> None:
    with mps_server() as found:
        folder = Path(os.environ[PIPES])
        assert found.state == "started"
        assert found.serving
        assert (folder / "control").exists()
        assert os.environ[LOGS] == str(folder)
        assert len(str(folder / "control")) < 108
    assert journal() == ["start", "quit"]
    assert PIPES not in os.environ
    assert LOGS not in os.environ
    assert not folder.exists()


def test_it_ends_when_what_is_inside_fails(journal: Callable[[], list[str]]) -> None:
    with pytest.raises(ZeroDivisionError), mps_server():
        raise ZeroDivisionError
    assert journal() == ["start", "quit"]
    assert PIPES not in os.environ


def test_one_that_serves_is_left_alone(
    journal: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "control").touch()
    monkeypatch.setenv(PIPES, str(tmp_path))
    with mps_server() as found:
        assert found.state == "found"
        assert os.environ[PIPES] == str(tmp_path)
    assert journal() == ["get_server_list"]
    assert (tmp_path / "control").exists()
    assert os.environ[PIPES] == str(tmp_path)


def test_what_a_dead_one_left_is_not_taken_for_it(
    journal: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PIPES, str(tmp_path))  # without its pipe
    with mps_server() as found:
        assert found.state == "started"
        assert os.environ[PIPES] != str(tmp_path)
    assert os.environ[PIPES] == str(tmp_path)


def test_one_that_does_not_start_is_told(
    journal: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with mps_server() as found:
        assert not found.serving
        assert found.why == "it could not be started: no rights"
        assert PIPES not in os.environ
    assert journal() == ["start"]


def test_nothing_is_done_without_a_gpu_or_the_program(
    journal: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with mps_server() as found:
        assert (found.state, found.why) == ("absent", "there is no CUDA device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with mps_server() as found:
        assert (found.state, found.why) == ("absent", f"{CONTROL} is not installed")
    assert journal() == []
    assert PIPES not in os.environ
