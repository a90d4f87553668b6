"""Hostile inputs end in one line: no code is run, nothing hangs, memory stays small."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from attack.attacks import Attacks, how_many
from attack.commands import Ended, Server
from attack.hostile_inputs import KINDS, PROOF

pytestmark = [pytest.mark.attack, pytest.mark.timeout(0)]

#: Inputs of each kind; `make test-attack` has 34.
INPUTS = how_many("inputs", 4)
#: Seconds of computing that a bad input may cost, seconds until it hangs, and bytes.
MOST_SECONDS, HANGS, MOST_BYTES = 10.0, 120.0, 2 * 2**30


@pytest.fixture(scope="module")
def model(photos: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    small = ["--backbone=small_cnn", "--embedding-size=8", "--gsp.prototypes=4", "--batch-size=8"]
    small += [
        "--recipe=papers",
        "--images-per-class=2",
        "--stop.max-steps=4",
        "--stop.validate-every=2",
    ]
    small += ["--hardware.accelerator=cpu", "--hardware.workers=0", "--out=run"]
    ended = server.run(["train", "--data", str(photos), *small], folder)
    assert ended.status == 0, ended.printed
    return folder / "run" / "model"


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_input_ends_in_one_line(
    kind: str, model: Path, server: Server, tmp_path: Path, attacks: Attacks
) -> None:
    for number in range(INPUTS):
        home = tmp_path / str(number) / "input"
        home.mkdir(parents=True)
        argv, refused = KINDS[kind](home, model, random.Random(f"{kind} {number}"))
        ended = server.run(argv, home.parent, limit=HANGS, most_bytes=2 * MOST_BYTES)
        why = _harm(ended, refused)
        if list(home.parent.rglob(PROOF)):
            why = "code was run"
        attack = f"seed {number}: {' '.join(argv[:1])}"
        if why:
            attacks.fail(kind, attack, why)
        else:
            attacks.note(kind, attack, "refused in one line" if ended.status else "accepted")
            shutil.rmtree(home.parent)
    attacks.check()


def _harm(ended: Ended, refused: bool) -> str:
    """What is wrong with the end of a command; empty if nothing is."""
    lines = ended.printed.strip().splitlines()
    last = lines[-1] if lines else ""
    if ended.hung or ended.cpu_seconds > MOST_SECONDS:
        return f"{ended.cpu_seconds:.0f} s of computing in {ended.seconds:.0f} s: {last[-200:]}"
    if ended.peak_bytes > MOST_BYTES:
        return f"took {ended.peak_bytes / 2**30:.1f} GB"
    if "Traceback" in ended.printed:
        return f"a traceback: {last[-200:]}"
    if ended.status == 0:
        return "accepted" if refused else ""
    if ended.status not in (1, 2):
        return f"ended with status {ended.status}: {last[-200:]}"
    errors = [line for line in lines if line.startswith("sumpool: error: ")]
    if len(errors) != 1 or last != errors[0]:
        return f"no single line says what is wrong: {last[-200:]}"
    return "" if len(last) < 2000 else f"a line of {len(last)} characters"
