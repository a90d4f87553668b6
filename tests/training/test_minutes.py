"""A time budget: training ends with it, at a rate of zero, and an interrupt stops the clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sumpool.training import OptimizerConfig, Progress, StopConfig, Trainer
from sumpool.training.budget import pace
from sumpool.training.interrupts import Interrupts
from training.tiny import CONFIG, fabric, trainer

#: One minute, of which each look at the clock takes two seconds.
TIMED = replace(
    CONFIG,
    minutes=1.0,
    optimizer=replace(CONFIG.optimizer, schedule="cosine"),
    stop=StopConfig(validate_every=1000, keep="last"),
    checkpoint_seconds=1e9,
)


class Clock:
    """A clock that moves on by two seconds with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 2
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def rate(runner: Trainer) -> float:
    return float(runner.optimizer.param_groups[0]["lr"])


def test_training_ends_with_its_time_and_rates_end_at_zero(clock: Clock) -> None:
    runner = trainer(TIMED)
    outcome = runner.fit()
    assert outcome.stopped == "minutes"
    assert outcome.best_step == outcome.steps > 15
    assert runner.progress.used >= 60
    assert 0 <= rate(runner) < 0.01 * CONFIG.optimizer.lr  # type: ignore[operator]


def test_what_comes_before_the_steps_counts(clock: Clock) -> None:
    whole, late = trainer(TIMED), trainer(TIMED)
    steps = whole.fit().steps
    rates: list[float] = []
    step = late._step
    late._step = lambda *given: rates.append(rate(late)) or step(*given)  # type: ignore
    began = clock.now - 40
    assert late.fit(began=began).steps < steps - 15
    assert late.progress.preparation >= 40
    assert rates[0] > 0.9 * CONFIG.optimizer.lr  # type: ignore[operator]


def test_a_budget_that_preparation_uses_up_is_said(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    runner = trainer(TIMED)
    assert runner.fit(began=clock.now - 100).steps == 1
    assert "preparation took all of the time budget, 1.0 minutes" in caplog.text


def test_the_last_step_ends_training_before_the_time_is_over(clock: Clock) -> None:
    runner = trainer(replace(TIMED, stop=replace(TIMED.stop, max_steps=10)))
    assert runner.fit().stopped == "max_steps"
    assert rate(runner) < 0.1 * CONFIG.optimizer.lr  # type: ignore[operator]


def test_a_resumed_run_has_the_rest_of_its_time(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trainer(TIMED, folder=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "asked", lambda self, fabric, step: step == 10)
        assert first.fit().stopped == "interrupted"
    second = trainer(TIMED, folder=tmp_path / "run")
    clock.now += 1000  # while it was not running
    assert second.fit(resume=True).stopped == "minutes"
    assert second.progress.used < 65
    assert second.progress.step > 10


def test_a_killed_run_has_checkpoints_without_validations(clock: Clock, tmp_path: Path) -> None:
    runner = trainer(replace(TIMED, checkpoint_seconds=0.0), folder=tmp_path / "run")
    saved: list[int] = []
    assert runner.folder is not None
    checkpoints = runner.folder.checkpoints
    save = checkpoints.save
    checkpoints.save = lambda step, state: saved.append(step) or save(step, state)  # type: ignore
    runner.fit()
    assert saved[:3] == [1, 2, 3]


@pytest.mark.parametrize(
    ("limit", "done"), [(None, (20.0, 50.0)), (100, (20.0, 50.0)), (10, (6, 10))]
)
def test_the_larger_share_counts(limit: int | None, done: Any) -> None:
    stop = StopConfig(validate_every=5, keep="last", max_steps=limit)
    config = replace(TIMED, stop=stop, optimizer=OptimizerConfig(lr=1.0))
    progress = Progress(step=6, seconds=20.0, preparation=10.0)
    assert pace.Pace(fabric(), config).done_and_total(progress) == done
