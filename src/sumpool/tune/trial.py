"""One trial: a run with its own options, scored on validation classes, ended early if hopeless."""

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
    """How a trial ended.

    Attributes:
        state: What became of it.
        number: Its number; None if the time was over before one began.
        error: Why it failed.
    """

    state: Literal["complete", "pruned", "failed", "out of time"]
    number: int | None = None
    error: str = ""


class _HopelessError(Exception):
    """Raised inside a run to end it."""


class _OutOfTimeError(Exception):
    """Raised inside a run when the time of the search is over."""


def trial_config(config: TrainConfig, options: Mapping[str, Any]) -> TrainConfig:
    """The run of a trial: ``config`` with its ``options``, less those that then have no effect."""
    return without_idle(with_options(config, options))


def run_trial(folder: Path, config: TrainConfig, until: float | None, _: int) -> TrialEnd:
    """Begin the next trial of the search in ``folder``, run it and store its score.

    This process may be killed at any time: the trial is then begun again by the next search.

    Args:
        folder: The search.
        config: The options of all trials.
        until: The time, in seconds since the epoch, at which trials end unfinished; None is never.

    Raises:
        KeyboardInterrupt: If a signal interrupted it.
        Exception: A defect; what a user can cause is stored with the trial.
    """
    if until is not None and time.time() >= until:
        return TrialEnd("out of time")
    store = _store(folder)
    asked, trial = store.begin(config.seed)

    def report(step: int, value: float) -> None:
        if not math.isfinite(value):  # the run itself says what is wrong
            return
        asked.report(value, step)
        # The default is what all others are compared with.
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
    """Train, and return the validation score of the model that is kept; opens no test image."""
    config = replace(config, test=False)
    check_effects(config)
    with quiet_fabric():
        trained = train_in_memory(config, splits=_splits(_data_options(config)), report=report)
    return trained.metrics["validation"][config.stop.monitor]


@lru_cache(maxsize=1)
def _store(folder: Path) -> TuneStore:
    """The search, opened once per process."""
    return TuneStore(folder)


def _data_options(config: TrainConfig) -> str:
    # Those that say which images there are; equal in all trials of a search.
    given = flat(config)
    names = ("data", "format", "fold", "folds", "validation", "seed", "skip_broken")
    named = {name: given[name] for name in (*names, "allow_outside", "test")}
    return json.dumps(named)


@lru_cache(maxsize=1)
def _splits(options: str) -> Splits:
    """The images, opened and checked once per process."""
    return open_splits(config_from_dict(json.loads(options)), progress=False)
