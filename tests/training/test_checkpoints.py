"""Checkpoints: whole or not there, checked when read, harmless whatever they hold."""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sumpool.training import Checkpoints, RunError
from sumpool.training.checkpoint import MAGIC


def state(step: int) -> dict[str, object]:
    return {"progress": {"step": step}, "weights": torch.full((1000,), float(step)), "best": None}


def sealed(payload: bytes) -> bytes:
    head = f"{MAGIC} {hashlib.sha256(payload).hexdigest()} {len(payload)}\n"
    return head.encode("ascii") + payload


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "deep" / "folder")
    assert checkpoints.load() is None
    checkpoints.save(7, state(7))
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded["progress"] == {"step": 7}
    assert torch.equal(loaded["weights"], torch.full((1000,), 7.0))


def test_the_last_two_are_kept_and_nothing_else(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (5, 20, 100, 9):
        checkpoints.save(step, state(step))
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".ckpt"] == []
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded["progress"]["step"] == 100


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1))
    newest = checkpoints.save(2, state(2))
    content = bytearray(newest.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[-100] ^= 1
    elif damage == "empty":
        content = bytearray()
    else:
        content = bytearray(b"not a checkpoint at all\n")
    newest.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        loaded = checkpoints.load()
    assert loaded is not None
    assert loaded["progress"]["step"] == 1
    assert str(newest) in caplog.text
    assert "the checkpoint before it is used" in caplog.text


def test_no_sound_checkpoint_is_an_error(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1)).write_bytes(b"")
    with pytest.raises(RunError, match="no sound checkpoint"):
        checkpoints.load()


class _Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def test_a_crafted_pickle_does_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    for number, payload in enumerate(
        (pickle.dumps(_Evil(str(trace)), protocol=2), _torch_file(trace))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "step-000000001.ckpt").write_bytes(sealed(payload))
        with pytest.raises(RunError, match="no sound checkpoint"):
            Checkpoints(folder).load()
    assert not trace.exists()


def _torch_file(trace: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"progress": _Evil(str(trace))}, buffer)
    return buffer.getvalue()


@pytest.mark.process
def test_a_full_disk_is_named_and_the_earlier_checkpoint_stays(tmp_path: Path) -> None:
    # A limit on the size of files stands for a full disk: the write fails half-way.
    code = f"""
import pathlib, resource, signal, torch
from sumpool.training import Checkpoints, RunError
checkpoints = Checkpoints(pathlib.Path({str(tmp_path)!r}))
checkpoints.save(1, {{"progress": {{"step": 1}}}})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    checkpoints.save(2, {{"weights": torch.zeros(1_000_000)}})
except RunError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "step-000000002.ckpt could not be written" in done.stdout
    assert "that of step 1 is intact" in done.stdout
    loaded = Checkpoints(tmp_path).load()
    assert loaded is not None
    assert loaded["progress"] == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.ckpt"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"step": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"No space left on device; that of step 1 is intact"):
            checkpoints.save(2, {"step": 2})
    assert checkpoints.load() == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.ckpt"]
