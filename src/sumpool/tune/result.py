"""Result of a search: the best options, as a command and as a file, and their gain."""

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
    """Current result of a search.

    Attributes:
        trials: All trials.
        best: The best complete trial; None if no trial is complete.
        default: The trial with default options; None if it is not complete.
        command: Command that trains with the best options; "" if no trial is complete.
        options: Options of the best trial that differ from the default.
        monitor: Name of the metric that is the score.
        space: The search space.
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
        """Short name of the score, such as "P@1"."""
        return PERCENT[self.monitor].removesuffix(" [%]")

    @property
    def gain(self) -> float | None:
        """Score of the best trial minus that of the default; None unless both are complete."""
        if self.best is None or self.default is None:
            return None
        return (self.best.score or 0.0) - (self.default.score or 0.0)

    def short(self) -> str:
        """Return the best score and that of the default, for a progress bar."""
        if self.best is None or self.best.score is None:
            return ""
        gain = f", default {100 * (self.default.score or 0):.1f}" if self.default else ""
        return f"best {self.label} {100 * self.best.score:.1f} %{gain}"

    def verdict(self) -> str:
        """State in one sentence whether the search beats the default."""
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
        """Return the number of trials by state, as text."""
        states = [it.state for it in self.trials]
        parts = [f"{states.count(it)} {it}" for it in ("complete", "pruned", "failed", "running")]
        listed = ", ".join(it for it in parts if not it.startswith("0 "))
        return f"{counted(len([it for it in states if it != 'waiting']), 'trial')}: {listed}"


def result_of(store: TuneStore) -> Result:
    """Return the current result of the search in ``store``."""
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
    """Return the shell command that trains with ``config``, on one line."""
    recipe = config.recipe or "papers"  # which leaves every option at its default
    config = replace(config, recipe=recipe, out=None)
    given: dict[str, Any] = {}
    # An option that is given may disable a setting of the recipe, which must then be given too.
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
