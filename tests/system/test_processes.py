"""The process pool: failures, deaths and ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from sumpool.system.processes import COMPILERS, WorkerError, run_in_processes
from system.worker_tasks import (
    breaks_its_process,
    dies_after_its_answer,
    dies_at_one,
    holds_open,
    is_interrupted,
    raises_unsendable,
    sleeps,
)

pytestmark = pytest.mark.process


def test_a_process_that_dies_takes_one_piece_with_it() -> None:
    done = {it.item: it for it in run_in_processes(dies_at_one, [0, 1, 2], 1)}
    assert done[0].found == 0
    assert done[2].found == 4
    assert isinstance(done[1].failure, WorkerError)
    assert str(done[1].failure) == "its process ended with exit code -9"


def test_what_one_item_breaks_does_not_fail_the_others() -> None:
    done = {it.item: it for it in run_in_processes(breaks_its_process, [0, 1, 2], 1)}
    assert str(done[0].failure) == "broken"
    assert (done[1].found, done[2].found) == (1, 2)


def test_a_process_that_dies_after_its_answer_takes_nothing_with_it() -> None:
    done = []
    for it in run_in_processes(dies_after_its_answer, [0, 1, 2], 1):
        done.append(it)
        if it.item == 0:
            # Until the process has died, the answer to the next piece waiting in the pipe.
            (process,) = multiprocessing.active_children()
            process.join(60)
    assert [(it.item, it.found, it.failure) for it in done] == [
        (0, 0, None),
        (1, 1, None),
        (2, 4, None),
    ]


def test_an_answer_is_given_whatever_becomes_of_the_next_piece() -> None:
    finished = run_in_processes(sleeps, [0, lambda: "cannot be sent"], 1)  # type: ignore[list-item]
    assert next(finished) == (0, 0, None)
    with pytest.raises(Exception, match="pickle"):
        next(finished)


def test_a_process_that_is_interrupted_ends_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    (done,) = run_in_processes(is_interrupted, [0], 1)
    assert str(done.failure) == "its process ended with exit code 130"
    assert capfd.readouterr().err == ""


def _let_work(pipe: str) -> None:
    list(run_in_processes(holds_open, [pipe], 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux ends them")
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    parent = multiprocessing.get_context("fork").Process(target=_let_work, args=[str(pipe)])
    parent.start()
    with pipe.open(encoding="utf-8") as file:
        assert file.readline() == "begun\n"
        assert parent.pid is not None
        os.kill(parent.pid, signal.SIGKILL)
        parent.join()
        assert file.read() == ""  # nobody holds it open any more


def test_processes_end_when_nobody_waits_for_them() -> None:
    begun = time.monotonic()
    finished = run_in_processes(sleeps, [0, 1, 2], 2)
    assert next(finished).item == 0
    finished.close()
    assert time.monotonic() - begun < 120  # not the 600 s that the work would take


def test_a_failure_that_cannot_be_sent_is_told_in_words() -> None:
    (done,) = run_in_processes(raises_unsendable, [1], 1)
    assert isinstance(done.failure, WorkerError)
    assert str(done.failure) == "UnsendableError: 1 and 2"
    assert any("raises_unsendable" in note for note in done.failure.__notes__)


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("7", "7")])
def test_processes_compile_by_themselves_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: str | None, found: str
) -> None:
    monkeypatch.delenv(COMPILERS, raising=False)
    if given is not None:
        monkeypatch.setenv(COMPILERS, given)
    (done,) = run_in_processes(os.getenv, [COMPILERS], 1)
    assert done.found == found
