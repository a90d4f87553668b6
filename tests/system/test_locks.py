"""Claims: one holder at a time, and none after its death."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sumpool.system.files import StoreError
from sumpool.system.locks import claim, holder, is_claimed

HOLD = """
import sys, time
from pathlib import Path
from sumpool.system.locks import claim
with claim(Path(sys.argv[1])) as mine:
    print("mine" if mine else "taken", flush=True)
    time.sleep(600)
"""

#: Holds a claim, forks a process that lives on, and says the number of that one.
HOLD_AND_FORK = """
import os, sys, time
from pathlib import Path
from sumpool.system.locks import claim
with claim(Path(sys.argv[1])) as mine:
    heard, said = os.pipe()
    child = os.fork()
    if not child:
        os.write(said, b"here")
        time.sleep(600)
        os._exit(0)
    os.read(heard, 4)  # it has begun
    print(child, flush=True)
    time.sleep(600)
"""


def start(script: str, path: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_one_process_has_a_claim(tmp_path: Path) -> None:
    path = tmp_path / "claims" / "a"
    assert not is_claimed(path)
    with claim(path) as mine:
        assert mine
        assert is_claimed(path)
        assert holder(path)["pid"] == os.getpid()
        with claim(path) as second:
            assert not second
        assert is_claimed(path)
    assert not is_claimed(path)
    with claim(path) as mine:
        assert mine
        path.chmod(0o444)  # as in a folder of someone else
        assert is_claimed(path)
    assert not is_claimed(path)


@pytest.mark.process
def test_a_claim_is_freed_by_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "a"
    process, said = start(HOLD, path)
    try:
        assert said == "mine"
        assert holder(path)["pid"] == process.pid
        with claim(path) as mine:
            assert not mine
    finally:
        end(process)
    with claim(path) as mine:
        assert mine


@pytest.mark.process
def test_a_forked_process_does_not_keep_the_claim_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "a"
    process, child = start(HOLD_AND_FORK, path)
    try:
        assert is_claimed(path)
        process.kill()
        process.wait()
        os.kill(int(child), 0)  # it lives
        assert not is_claimed(path)
    finally:
        os.kill(int(child), signal.SIGKILL)
        end(process)


def test_a_forked_process_that_ends_leaves_the_claim_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with claim(path) as mine:
        assert mine
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
        child.start()
        child.join()
        assert is_claimed(path)


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"a cannot be locked \(No locks available\)"):
        claim(tmp_path / "a").__enter__()
