"""The validation before training shows what the network was worth, and changes nothing."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from sumpool.training import GspConfig
from sumpool.training.assemble import build_validation
from sumpool.training.interrupts import Interrupts
from training.tiny import Memory, MemoryFeed, Scripted, fabric, trainer


def steps(folder: Path) -> list[tuple[str, str]]:
    with (folder / "validation.csv").open(newline="") as file:
        return [(row["step"], row["is_best"]) for row in csv.DictReader(file)]


def test_a_run_computes_the_same_with_and_without_it(tmp_path: Path) -> None:
    states = []
    for first in (False, True):
        torch.manual_seed(0)
        validate = build_validation(MemoryFeed(Memory()), None, fabric())
        run = trainer(validate=validate, folder=tmp_path / str(first), dropout=0.3)
        outcome = run.fit(validate_first=first)
        states.append((outcome, run.model.state_dict(), torch.get_rng_state()))
    (one, weights, random), (other, others, again) = states
    assert one == other
    assert torch.equal(random, again)
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert steps(tmp_path / "True") == [("0", "0"), *steps(tmp_path / "False")]


def test_it_pools_as_the_first_step_does() -> None:
    averages = []

    def validate(model: Any) -> dict[str, float]:
        averages.append(model.pooling.averaging)
        return {"precision_at_1": 0.5, "mean_average_precision_at_r": 0.5}

    run = trainer(validate=validate, gsp=GspConfig(4, 0.5, 5.0, average_steps=5))
    run.fit(validate_first=True)
    assert averages == [True, True, False, False]


def test_step_0_is_never_selected(tmp_path: Path) -> None:
    outcome = trainer(validate=Scripted([0.9, 0.1, 0.2, 0.1]), folder=tmp_path).fit(
        validate_first=True
    )
    assert outcome.best_step == 8
    assert steps(tmp_path) == [("0", "0"), ("4", "1"), ("8", "1"), ("12", "0")]


def test_a_resumed_run_does_not_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "asked", lambda self, fabric, step: step == 6)
        assert trainer(folder=tmp_path).fit(validate_first=True).stopped == "interrupted"
    trainer(folder=tmp_path).fit(resume=True, validate_first=True)
    assert [step for step, _ in steps(tmp_path)] == ["0", "4", "8", "12"]


def test_a_run_that_starts_over_has_one_line_of_it(tmp_path: Path) -> None:
    killed = trainer(folder=tmp_path)
    killed._journal.open(killed.progress, resume=False)
    killed._journal.validated(killed.progress, {"precision_at_1": 0.25}, is_best=False)
    killed._journal.close()
    trainer(folder=tmp_path).fit(resume=True, validate_first=True)
    assert [step for step, _ in steps(tmp_path)] == ["0", "4", "8", "12"]
