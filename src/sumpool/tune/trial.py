"""A trial: a run with its own options, scored on validation classes and pruned if hopeless."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from sumpool.system.errors import UserError
from sumpool.system.fabric_logging import quiet_fabric
from sumpool.training.config import TrainConfig, config_from_dict, flat, with_options
from sumpool.training.settings import check_effects, without_idle
from sumpool.training.splits import Splits, open_splits
from sumpool.training.without_folder import train_in_memory
from sumpool.tune.store import TuneStore


@dataclass(frozen=True)
class TrialEnd:
    """Outcome of a trial.

    Attributes:
        state: How it ended.
        number: Number of the trial; None if time ran out before one began.
        error: Why it failed; empty otherwise.
    """

    state: Literal["complete", "pruned", "failed", "out of time"]
    number: int | None = None
    error: str = ""


class _HopelessError(Exception):
    """Raised inside a run to prune its trial."""


class _OutOfTimeError(Exception):
    """Raised inside a run when the search runs out of time."""


def trial_config(config: TrainConfig, options: Mapping[str, Any]) -> TrainConfig:
    """Return ``config`` with a trial's ``options``; options left without effect are reset."""
    return without_idle(with_options(config, options))


def run_trial(folder: Path, config: TrainConfig, until: float | None, _: int) -> TrialEnd:
    """Run the next trial of the search in ``folder`` and store its score.

    The process may be killed at any time; the search restarts the trial when it is resumed.

    Args:
        folder: Folder of the search.
        config: Options of all trials.
        until: Time at which trials stop unfinished, in seconds since the epoch; None for no limit.

    Raises:
        KeyboardInterrupt: If a signal interrupts it.
        Exception: On defects; a :class:`~sumpool.system.errors.UserError` only fails the trial.
    """
    if until is not None and time.time() >= until:
        return TrialEnd("out of time")
    store = _store(folder)
    asked, trial = store.begin(config.seed)

    def report(step: int, value: float) -> None:
        if not math.isfinite(value):  # the run itself reports what is wrong
            return
        asked.report(value, step)
        # The default is never pruned: all others are compared with it.
        if trial.number and asked.should_prune():
            raise _HopelessError
        if until is not None and time.time() >= until:
            raise _OutOfTimeError

    try:
        score = score_of(trial_config(config, trial.options), report)
    except _HopelessError:
        store.prune(asked)
        return TrialEnd("pruned", trial.number)
    except _OutOfTimeError:
        return TrialEnd("out of time", trial.number)
    except UserError as error:
        message = " ".join(str(error).split())
        store.fail(asked, message)
        return TrialEnd("failed", trial.number, message)
    except Exception as error:
        store.fail(asked, f"{type(error).__name__}: {error}")
        raise
    store.complete(asked, score)
    return TrialEnd("complete", trial.number)


def score_of(config: TrainConfig, report: Any) -> float:
    """Train, and return the validation score of the selected model; opens no test image."""
    config = replace(config, test=False)
    check_effects(config)
    with quiet_fabric():
        trained = train_in_memory(config, splits=_splits(_data_options(config)), report=report)
    return trained.metrics["validation"][config.stop.monitor]


@lru_cache(maxsize=1)
def _store(folder: Path) -> TuneStore:
    """Open the search, once per process."""
    return TuneStore(folder)


def _data_options(config: TrainConfig) -> str:
    # Options that determine the images; equal in all trials of a search.
    given = flat(config)
    names = ("data", "format", "fold", "folds", "validation", "seed", "skip_broken")
    named = {name: given[name] for name in (*names, "allow_outside", "test")}
    return json.dumps(named)


@lru_cache(maxsize=1)
def _splits(options: str) -> Splits:
    """Open and check the images, once per process."""
    return open_splits(config_from_dict(json.loads(options)), progress=False)
