"""An index that is killed while it is built, and continued, is the one that was not killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search.small_index import small_model, write_pictures
from sumpool.models import save_embedder
from sumpool.search.folder import HEADER, LOCK, read_header

KILLS = 10
#: Builds in small parts, so that a kill falls between and into them. Says when all is imported.
COMMAND = """
import pathlib, sys
import sumpool.search.parts as parts
import sumpool.search.update
parts.SIZE = 3
from sumpool.cli import main
pathlib.Path(sys.argv[1]).touch()
sys.exit(main(sys.argv[2:]))
"""


def files_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK]


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_in(folder)}


def start(mark: Path, *words: str | Path) -> subprocess.Popen[bytes]:
    """Start the command, and return when it has imported what it needs."""
    mark.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(mark), *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while process.poll() is None and not mark.exists():
        time.sleep(0.01)
    return process


@pytest.mark.process
@pytest.mark.timeout(1800)
def test_ten_kills_lead_to_the_same_index(tmp_path: Path) -> None:
    write_pictures(tmp_path / "photos", 24)
    save_embedder(small_model(), tmp_path / "model")
    words = ["index", "--data", tmp_path / "photos", "--model", tmp_path / "model", "--thumbnails",
             "--batch-size", "2", "--device", "cpu"]  # fmt: skip
    mark, whole, torn = tmp_path / "mark", tmp_path / "whole", tmp_path / "torn"
    assert start(mark, *words, "--out", whole).wait() == 0
    chance = random.Random(0)
    killed = 0
    while killed < KILLS:
        goal = len(files_in(torn)) + chance.randint(0, 12)
        process = start(mark, *words, "--out", torn)
        while process.poll() is None and len(files_in(torn)) < goal:
            time.sleep(0.001)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        if (torn / HEADER).exists() and read_header(torn).generation is not None:
            # Complete, perhaps with files that were not tidied up: further kills hit a new one.
            assert start(mark, "index", torn, "--update").wait() == 0
            assert listing(torn) == listing(whole)
            shutil.rmtree(torn)
    assert start(mark, *words, "--out", torn).wait() == 0
    assert listing(torn) == listing(whole)
