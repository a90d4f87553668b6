"""Processes side by side: failures, deaths and ends."""

from __future__ import annotations

import os
import time

import pytest

from studies.worker_tasks import dies_at_one, raises_unsendable, sleeps
from sumpool.studies.workers import COMPILERS, WorkerError, work_side_by_side


def test_a_process_that_dies_takes_one_piece_with_it() -> None:
    done = {it.item: it for it in work_side_by_side(dies_at_one, [0, 1, 2], 1)}
    assert done[0].found == 0
    assert done[2].found == 4
    assert isinstance(done[1].failure, WorkerError)
    assert str(done[1].failure) == "its process ended with exit code -9"


def test_processes_end_when_nobody_waits_for_them() -> None:
    begun = time.monotonic()
    finished = work_side_by_side(sleeps, [0, 1, 2], 2)
    assert next(finished).item == 0
    finished.close()
    assert time.monotonic() - begun < 120  # not the 600 s that the work would take


def test_a_failure_that_cannot_be_sent_is_told_in_words() -> None:
    (done,) = work_side_by_side(raises_unsendable, [1], 1)
    assert isinstance(done.failure, WorkerError)
    assert str(done.failure) == "UnsendableError: 1 and 2"
    assert any("raises_unsendable" in note for note in done.failure.__notes__)


@pytest.mark.parametrize(("told", "found"), [(None, "2"), ("7", "7")])
def test_processes_do_not_compile_with_all_cores_each(
    monkeypatch: pytest.MonkeyPatch, told: str | None, found: str
) -> None:
    monkeypatch.delenv(COMPILERS, raising=False)
    if told is not None:
        monkeypatch.setenv(COMPILERS, told)
    (done,) = work_side_by_side(os.getenv, [COMPILERS], 1)
    assert done.found == found
