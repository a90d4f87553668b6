"""Run a search: parallel trials up to a number or a time limit, resumable after a crash."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from sumpool.data import detect_format
from sumpool.report.run.folder import RUN
from sumpool.system import processes
from sumpool.system.files import StoreError
from sumpool.system.locks import claim, held_by
from sumpool.system.processes import WorkerError, run_here
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError, TrainConfig, flat
from sumpool.training.errors import RunError
from sumpool.training.settings import DECISIVE, check_effects, resolve
from sumpool.tune.result import Result, result_of, write_best
from sumpool.tune.space import Dimension
from sumpool.tune.store import DATABASE, LOCK, TuneStore, untried
from sumpool.tune.trial import TrialEnd, run_trial, trial_config

logger = logging.getLogger(__name__)

#: Maximum number of trials of a search limited by time only.
MOST = 1000
#: Folder of decoded images shared by all trials.
IMAGES = "images"


class Executor(processes.Executor[int, TrialEnd], Protocol):
    """Runs trials in this process, in local processes, or on a cluster."""


def run_search(
    folder: Path,
    config: TrainConfig,
    space: Sequence[Dimension],
    *,
    trials: int | None = None,
    minutes: float | None = None,
    executor: Executor = run_here,
    progress: bool = True,
) -> Result:
    """Search for the options that score best on validation classes.

    Trial 0 is the default: ``config`` unchanged. Trials stored in ``folder`` count and are not
    repeated; those left unfinished by a killed search are restarted.

    Args:
        folder: Folder of the search.
        config: Options of all trials; ``out`` and ``minutes`` are ignored.
        space: The search space.
        trials: Total number of trials; None for a limit by ``minutes`` only.
        minutes: Time limit in minutes; None for no limit.
        executor: Runs the trials.
        progress: Whether to show a progress bar.

    Raises:
        ConfigError: If an option cannot be used in a search, or varying one has no effect.
        StoreError: If the folder holds a run or another search, or another process is using it.
        RunError: If the default fails, or no trial is completed in time.
    """
    if trials is None and minutes is None:
        raise ConfigError("the end is missing: give --trials or --minutes")
    until = None if minutes is None else time.time() + 60 * minutes
    config = replace(config, out=None, minutes=None)
    _check(config)
    check_effects(config)
    _check_space(space, config)
    if (folder / RUN).exists() and not (folder / DATABASE).exists():
        raise StoreError(f"{folder} holds a run: choose another folder with --out")
    default = flat(resolve(config, _data_set(config)))
    with claim(folder / LOCK) as mine:
        if not mine:
            raise StoreError(f"{folder} is being searched by {held_by(folder / LOCK)}")
        store = TuneStore.create(folder, config, space, default)
        store.retry_default()
        again = store.requeue_lost()
        if again:
            logger.info(
                "%s begun again", counted(again, "unfinished trial is", "unfinished trials are")
            )
        try:
            _run(store, _trial_options(config, folder), trials, until, executor, progress)
        finally:
            store.requeue_lost()
            result = result_of(store)
            write_best(folder, result)
    if result.best is None:
        raise RunError(
            f"no trial was finished in time: the same command continues; what is stored is in "
            f"{folder}"
        )
    return result


def _run(
    store: TuneStore,
    config: TrainConfig,
    trials: int | None,
    until: float | None,
    executor: Executor,
    progress: bool,
) -> None:
    work = partial(run_trial, store.folder.absolute(), config, until)
    with tqdm(total=trials, desc="tune", unit="trial", disable=not progress) as bar:
        while left := _left(store, trials or MOST, bar):
            if until is not None and time.time() >= until:
                return
            crash: Exception | None = None
            with closing(executor(work, range(left))) as finished:
                for _, end, failure in finished:
                    if end is not None and end.state == "out of time":
                        return
                    missing = _left(store, trials or MOST, bar)
                    if failure is not None and not isinstance(failure, WorkerError):
                        raise failure
                    crash = failure or crash
                    if end is not None and end.state == "failed":
                        if end.number == 0:
                            raise RunError(f"the default fails: {end.error}")
                        logger.warning("trial %s failed: %s", end.number, end.error)
            if not store.requeue_lost(crashed=crash is not None) and crash and missing == left:
                raise crash  # it failed before a trial began, and would do so again
        if bar.n < (trials or MOST):
            logger.info("every point of the space is tried: the search ends")


def _left(store: TuneStore, trials: int, bar: Any) -> int:
    """Return the number of trials left to run, and update the progress bar."""
    result = result_of(store)
    done = sum(it.finished for it in result.trials)
    bar.n = done
    bar.set_postfix_str(result.short())
    return int(max(0, min(trials - done, untried(result.trials, store.space))))


def _check(config: TrainConfig) -> None:
    if config.selection != "validation":
        raise ConfigError(
            "selection must be validation: a search that looks at the test set learns it"
        )
    for name, value in (("devices", config.hardware.devices), ("nodes", config.hardware.nodes)):
        if value != 1:
            raise ConfigError(
                f"hardware.{name} must be 1 in a search, got {value}: run trials in parallel with "
                "--jobs or --ray"
            )


def _check_space(space: Sequence[Dimension], config: TrainConfig) -> None:
    """Refuse a dimension that changes no trial, whatever the values of the others."""
    for dimension in space:
        decisive = [it for it in space if it.name in DECISIVE and it != dimension]
        one, another = dimension.samples[:2]
        for values in product(*(it.samples for it in decisive)):
            others = {it.name: value for it, value in zip(decisive, values, strict=True)}
            first = trial_config(config, {**others, dimension.name: one})
            if first != trial_config(config, {**others, dimension.name: another}):
                break
        else:
            raise ConfigError(
                f"vary {dimension.name} has no effect in any trial: leave it out, or set or vary "
                "the options that it depends on"
            )


def _trial_options(config: TrainConfig, folder: Path) -> TrainConfig:
    """Return ``config`` with no test set, and with decoded images shared by all trials."""
    config = replace(config, out=None, test=False)
    if config.cache != "none" and config.cache_dir is None and not config.freeze_backbone:
        return replace(config, cache_dir=str((folder / IMAGES).absolute()))
    return config


def _data_set(config: TrainConfig) -> str:
    if config.format != "auto":
        return config.format
    if config.data is None:
        raise ConfigError("data is missing: name a folder or CSV file with --data")
    return detect_format(config.data)
