"""What a search found: the best options, as a command and as a file, and what they gain."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sumpool.report.run.labels import PERCENT
from sumpool.system.files import write_atomic
from sumpool.system.wording import counted
from sumpool.training.config import TrainConfig, differences
from sumpool.training.values.recipes import DEFAULT_RECIPE, with_recipe
from sumpool.tune.space import Dimension, option_text
from sumpool.tune.store import BEST, Trial, TuneStore, best_trial
from sumpool.tune.trial import trial_config


@dataclass(frozen=True)
class Result:
    """What is known of a search.

    Attributes:
        trials: All trials.
        best: The best complete one; None if none is complete.
        default: The trial with default options; None if it is not complete.
        command: The command that trains with the best options; "" without one.
        options: The best options that differ from the default.
        monitor: Name of the score.
        space: What is varied.
    """

    trials: Sequence[Trial]
    best: Trial | None
    default: Trial | None
    command: str
    options: Mapping[str, Any]
    monitor: str
    space: Sequence[Dimension]

    @property
    def label(self) -> str:
        """The score in words, such as "P@1"."""
        return PERCENT[self.monitor].removesuffix(" [%]")

    @property
    def gain(self) -> float | None:
        """By how much the best trial is better than the default; None if that is not known."""
        if self.best is None or self.default is None:
            return None
        return (self.best.score or 0.0) - (self.default.score or 0.0)

    def short(self) -> str:
        """Best score and gain, for a progress bar."""
        if self.best is None or self.best.score is None:
            return ""
        gain = f", default {100 * (self.default.score or 0):.1f}" if self.default else ""
        return f"best {self.label} {100 * self.best.score:.1f} %{gain}"

    def verdict(self) -> str:
        """Whether the search beats the default, in a sentence."""
        if self.best is None or self.best.score is None:
            return "No trial is complete yet."
        score = f"{self.label} {100 * self.best.score:.1f} % on validation classes"
        if self.gain is None:
            return f"Trial {self.best.number} is best: {score}. The default is not complete yet."
        if self.gain <= 0:
            return f"No trial beats the default: {score}."
        return (
            f"Trial {self.best.number} beats the default by {100 * self.gain:.1f} points: {score}, "
            f"the default {100 * (self.best.score - self.gain):.1f} %."
        )

    def counts(self) -> str:
        """How the trials ended, in words."""
        states = [it.state for it in self.trials]
        parts = [f"{states.count(it)} {it}" for it in ("complete", "pruned", "failed", "running")]
        listed = ", ".join(it for it in parts if not it.startswith("0 "))
        return f"{counted(len([it for it in states if it != 'waiting']), 'trial')}: {listed}"


def result_of(store: TuneStore) -> Result:
    """What is known of the search in ``store``."""
    trials, config, space = store.trials(), store.config, store.space
    best = best_trial(trials)
    default = next((it for it in trials if it.number == 0 and it.state == "complete"), None)
    monitor = config.stop.monitor
    if best is None:
        return Result(trials, None, default, "", {}, monitor, space)
    chosen = trial_config(config, best.options)
    options = {name: new for name, (new, _) in differences(chosen, config).items()}
    return Result(trials, best, default, train_command(chosen), options, monitor, space)


def train_command(config: TrainConfig) -> str:
    """The command that trains with ``config``, on one line, as a shell reads it."""
    recipe = config.recipe or "papers"  # which leaves every option at its default
    config = replace(config, recipe=recipe, out=None)
    given: dict[str, Any] = {}
    # What is given may end a setting of the recipe, which is then given too.
    while missing := differences(config, with_recipe(recipe, given)):
        given |= {name: value for name, (value, _) in missing.items()}
    words = ["sumpool", "train", *(["--recipe", recipe] if recipe != DEFAULT_RECIPE else [])]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", option_text(value)]
    return shlex.join(words)


def write_best(folder: Path, result: Result) -> None:
    """Write the best options to ``best.json``, if a trial is complete."""
    if result.best is None:
        return
    found = {
        "command": result.command,
        "options": dict(result.options),
        "trial": result.best.number,
        "monitor": result.monitor,
        "validation": result.best.score,
        "default_validation": None if result.default is None else result.default.score,
        "gain": result.gain,
        "trials": len([it for it in result.trials if it.finished]),
    }
    text = json.dumps(found, indent=2, ensure_ascii=False)
    write_atomic(folder / BEST, f"{text}\n".encode())
