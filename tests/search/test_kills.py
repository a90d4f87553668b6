"""An index that is killed while it is built, and continued, is the one that was not killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search.small_index import small_model, write_pictures
from sumpool.models import save_embedder
from sumpool.search.folder import LOCK

KILLS = 10
#: Builds in small parts, so that a kill falls between and into them.
COMMAND = """
import sys
import sumpool.search.parts as parts
parts.SIZE = 5
from sumpool.cli import main
sys.exit(main(sys.argv[1:]))
"""


def listing(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def start(*words: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(process: subprocess.Popen[bytes], out: Path) -> None:
    """Wait until the index is begun: before, there is nothing to lose."""
    while process.poll() is None and not (out / "model").is_dir():
        time.sleep(0.01)


@pytest.mark.process
@pytest.mark.timeout(1800)
def test_ten_kills_lead_to_the_same_index(tmp_path: Path) -> None:
    write_pictures(tmp_path / "photos", 60)
    save_embedder(small_model(), tmp_path / "model")
    words = ["index", "--data", tmp_path / "photos", "--model", tmp_path / "model", "--thumbnails",
             "--batch-size", "2", "--device", "cpu"]  # fmt: skip
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    process = start(*words, "--out", whole)
    wait_for(process, whole)
    begun = time.monotonic()
    assert process.wait() == 0, process.stderr and process.stderr.read()
    lasts = time.monotonic() - begun
    chance = random.Random(0)
    killed = 0
    while killed < KILLS:
        process = start(*words, "--out", torn)
        wait_for(process, torn)
        time.sleep(chance.uniform(0, lasts / 4))
        process.send_signal(signal.SIGKILL)
        ended = process.wait()
        if ended == -signal.SIGKILL:
            killed += 1
        elif b"is an index already" in (process.stderr.read() if process.stderr else b""):
            # Finished before its end: from here on, updates are killed. One image changes.
            (tmp_path / "photos" / "000.png").touch()
            process = start("index", torn, "--update")
            time.sleep(chance.uniform(lasts / 4, lasts))
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
    process = start("index", torn, "--update")
    assert process.wait() == 0, process.stderr and process.stderr.read()
    process = start("index", whole, "--update")
    assert process.wait() == 0, process.stderr and process.stderr.read()
    assert listing(torn) == listing(whole)
