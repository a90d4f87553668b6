"""Counts attacks, and writes the counts and failures: ``--attack-report docs/results/attack``."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attack.attacks import Attacks
from attack.commands import Server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attack-report", type=Path, help="folder for the table of attacks")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KEPT] = []


KEPT: pytest.StashKey[list[Attacks]] = pytest.StashKey()


@pytest.fixture
def attacks(request: pytest.FixtureRequest) -> Attacks:
    """Counts the attacks of one test."""
    counted = Attacks(request.node.name)
    request.config.stash[KEPT].append(counted)
    return counted


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight classes of six small images in one color each; ../parted has four more to test on."""
    random = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("images") / "photos"
    parted = root.parent / "parted"
    for number in range(12):
        folder = (root if number < 8 else parted / "test") / f"class {number}"
        folder.mkdir(parents=True)
        color = random.uniform(40, 215, 3)
        for index in range(6):
            pixels = np.clip(color + random.normal(0, 25, (36, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{index}.png")
    shutil.copytree(root, parted / "train")
    return root


def pytest_sessionfinish(session: pytest.Session) -> None:
    folder: Path | None = session.config.getoption("--attack-report")
    kept = [it for it in session.config.stash[KEPT] if it.attacks]
    if folder is None or not kept:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for counted in kept for row in counted.rows()]
    (folder / "attacks.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = [f"{name}={value}" for name, value in os.environ.items() if "ATTACK_" in name]
    arguments = " ".join(session.config.invocation_params.args)
    command = " ".join([*sorted(settings), "python -m pytest", arguments])
    text = REPORT.format(
        command=command,
        machine=f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {sys.version.split()[0]}",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        table="\n".join(line for counted in kept for line in counted.table()),
        failures="\n".join(line for counted in kept for line in counted.failed()) or "None.",
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


REPORT = """\
# Attacks

Kills at random moments, damaged files and hostile inputs; what each one did. One line per attack
is in [attacks.jsonl](attacks.jsonl). Written by the command itself.

* command: `{command}`
* machine: {machine}
* date: {date}

| attack | on | tried | outcomes | failed |
|---|---|---:|---|---:|
{table}

## Failures

{failures}
"""
