"""Commands are killed at random moments, resumed, and end with the bytes of undisturbed ones."""

from __future__ import annotations

import csv
import json
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attack.attacks import Attacks, how_many
from attack.commands import Ended, Kill, Server
from sumpool.bench.store.store import BenchStore
from sumpool.report.run.folder import EVALUATION, MODEL, RUN, VALIDATION
from sumpool.system.rows import ARRAYS, read_rows

pytestmark = [pytest.mark.attack, pytest.mark.timeout(0)]

#: Kills of each command; `make test-attack` has 25.
KILLS = how_many("kills", 3)
WAYS = [
    (signal.SIGKILL, False),
    (signal.SIGTERM, False),
    (signal.SIGTERM, True),
    (signal.SIGINT, True),
]
#: What a signal may end with: where it is handled, or before it can be.
STATUS = {
    signal.SIGKILL: {-9},
    signal.SIGTERM: {143, -15},
    signal.SIGINT: {130, -2},
}
SMALL = {
    "backbone": "small_cnn",
    "embedding_size": "8",
    "batch_size": "8",
    "images_per_class": "2",
    "optimizer.lr": "1e-3",
    "stop.validate_every": "5",
    "stop.max_steps": "40",
    "stop.patience": "100",
    "checkpoint_seconds": "0",
    "hardware.accelerator": "cpu",
}


@dataclass(frozen=True)
class Command:
    """A command, how it is resumed (None if it is finished), and its results."""

    first: list[str]
    again: Callable[[Path], list[str] | None]
    results: Callable[[Path], Any]


def train(photos: Path, _: Path) -> Command:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    more = ["--gsp.prototypes=4", "--gallery=false", "--hardware.workers=2", "--out=run"]
    command = ["train", "--data", str(photos), "--recipe=papers", *options, *more]

    def again(folder: Path) -> list[str] | None:
        facts = folder / "run" / RUN
        if not facts.is_file():
            return command
        finished = json.loads(facts.read_text())["finished"]
        return None if finished else ["train", "--resume", "run"]

    def results(folder: Path) -> Any:
        run = folder / "run"
        with (run / VALIDATION).open(newline="") as file:
            validations = [
                {name: value for name, value in row.items() if "seconds" not in name}
                for row in csv.DictReader(file)
            ]
        paths = [*(run / MODEL).iterdir(), *(run / EVALUATION).glob("*/*")]
        return validations, {str(it.relative_to(run)): it.read_bytes() for it in paths}

    return Command(command, again, results)


def bench(photos: Path, _: Path) -> Command:
    settings = {**SMALL, "hardware.workers": "1"}
    chosen = [f"{name}={value}" for name, value in settings.items() if name != "backbone"]
    data = str(photos.parent / "parted")
    command = ["bench", "fair", "--data", data, "--backbone=small_cnn", "--pool", "gap"]
    command += ["--seeds=1", "--folds", "1", "--jobs=1", "--out=b", "--set", *chosen]

    def results(folder: Path) -> Any:
        store = BenchStore(folder / "b")
        assert store.damaged() == []
        return [(row.id, row.steps, row.best_step, dict(row.metrics)) for row in store.rows()]

    return Command(command, lambda _: command, results)


def study(_: Path, __: Path) -> Command:
    command = ["study", "tokens", "--quick", "--out=s"]

    def results(folder: Path) -> Any:
        rows = {json.dumps(row.cell): dict(row.metrics) for row in read_rows(folder / "s")}
        assert len(rows) == len(read_rows(folder / "s"))
        arrays = (folder / "s" / ARRAYS).glob("*")
        return rows, {it.name: it.read_bytes() for it in arrays}

    return Command(command, lambda _: command, results)


def embed(photos: Path, model: Path) -> Command:
    command = ["embed", str(model), "--data", str(photos), "--out=v.npy", "--workers=2"]
    command += ["--batch-size=2"]

    def again(folder: Path) -> list[str] | None:
        return None if (folder / "v.npy").exists() else command

    return Command(command, again, lambda folder: (folder / "v.npy").read_bytes())


COMMANDS = {"train": train, "bench": bench, "study": study, "embed": embed}


@pytest.fixture(scope="module")
def model(photos: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    ended = server.run(train(photos, folder).first, folder)
    assert ended.status == 0, ended.printed
    return folder / "run" / MODEL


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_resumes_to_the_same_bytes(
    name: str, photos: Path, model: Path, server: Server, tmp_path: Path, attacks: Attacks
) -> None:
    command = COMMANDS[name](photos, model)
    whole = tmp_path / "whole"
    whole.mkdir()
    ended = server.run(command.first, whole)
    assert ended.status == 0, ended.printed
    expected = command.results(whole)
    draw = random.Random(name)
    for number in range(KILLS):
        sent, group = WAYS[number % len(WAYS)]
        kill = Kill(draw.uniform(0, ended.seconds), sent, group)
        folder = tmp_path / str(number)
        folder.mkdir()
        why = _attack(server, command, kill, folder, expected)
        if why:
            attacks.fail(name, str(kill), why)
        else:
            attacks.note(name, str(kill), "same bytes")
    attacks.check()


def _attack(server: Server, command: Command, kill: Kill, folder: Path, expected: Any) -> str:
    """Why the command did not end as an undisturbed one; empty if it did."""
    ended = server.run(command.first, folder, kill=kill)
    if ended.killed and ended.status not in {0, *STATUS[kill.signal]}:
        return f"ended with status {ended.status}: {_tail(ended)}"
    if "Traceback" in ended.printed:
        return f"printed a traceback: {_tail(ended)}"
    for _ in range(2):  # the second does nothing to what is finished
        again = command.again(folder)
        if again is None:
            break
        ended = server.run(again, folder)
        if ended.status != 0:
            return f"resuming ended with status {ended.status}: {_tail(ended)}"
    try:
        return "" if command.results(folder) == expected else "other results"
    except Exception as error:
        return f"no results: {type(error).__name__}: {error}"


def _tail(ended: Ended) -> str:
    return ended.printed.strip()[-300:]
