"""Trials of a search in Optuna's SQLite storage: finished trials survive any crash."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sumpool.system.files import StoreError
from sumpool.system.locks import exclusive
from sumpool.training.config import FREE_TO_CHANGE, TrainConfig, flat, with_options
from sumpool.tune.sampling import Point, distributions, import_optuna, suggest
from sumpool.tune.space import Dimension, space_from_json, space_to_json

#: Files of a search.
DATABASE, BEST, LOCK = "study.db", "best.json", ".lock"
#: Lock held briefly while the next trial is chosen.
_ASKING = ".asking"
_NAME = "sumpool"
#: Trials needed before the Gaussian process is used, and before any trial is pruned.
START = 5
#: Attempts at a trial whose process crashes.
ATTEMPTS = 3
#: Options that may differ when a search continues.
_MAY_CHANGE = (FREE_TO_CHANGE | {"minutes"}) - {"stop.max_steps", "skip_broken"}
#: Seconds to wait for another process to finish writing.
_PATIENCE = 60

State = Literal["complete", "pruned", "failed", "running", "waiting"]


@dataclass(frozen=True)
class Trial:
    """A trial of a search.

    Attributes:
        number: Position in the search; 0 is the default.
        state: Whether it is waiting or running, or how it ended.
        options: Options that it sets, by dotted name; empty for the default.
        params: Coordinates in the search space; the default lacks those outside the space.
        score: Validation score; for a trial that is not complete, the best so far.
        curve: Validation scores by step.
        seconds: Duration; None while it is not finished.
        error: Why it failed; empty otherwise.
    """

    number: int
    state: State
    options: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""

    @property
    def finished(self) -> bool:
        """Whether it is complete, pruned or failed."""
        return self.state in ("complete", "pruned", "failed")


class TuneStore:
    """A search stored in a folder.

    Args:
        folder: The folder; :meth:`create` creates it if missing.

    Raises:
        StoreError: If the folder holds no search.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / DATABASE).is_file():
            raise StoreError(f"{folder} holds no search: {DATABASE} is missing")
        self.folder = folder
        optuna = import_optuna("sumpool tune")
        self._optuna = optuna
        try:
            self._study = optuna.load_study(
                study_name=_NAME,
                storage=_storage(optuna, folder, skip_compatibility_check=True),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=START),
            )
        except KeyError as error:
            raise StoreError(f"{folder} holds no search yet: it is being made") from error
        except Exception as error:  # raised by SQLAlchemy if the file is no database
            raise StoreError(f"{folder / DATABASE} is damaged: {error}") from error

    @classmethod
    def create(
        cls,
        folder: Path,
        config: TrainConfig,
        space: Sequence[Dimension],
        default: Mapping[str, Any],
    ) -> TuneStore:
        """Open the search in ``folder``, or create one whose trial 0 is the default.

        Args:
            folder: The folder.
            config: Options of all trials.
            space: The search space.
            default: Values of the varied options in the default trial.

        Raises:
            StoreError: If the folder holds a search with other options.
        """
        given, stored = flat(config), space_to_json(space)
        optuna = import_optuna("sumpool tune")
        folder.mkdir(parents=True, exist_ok=True)
        # A process killed before it set the attributes leaves a study without trials: set them.
        study = optuna.create_study(
            study_name=_NAME,
            storage=_storage(optuna, folder),
            direction="maximize",
            load_if_exists=True,
        )
        begun = study.user_attrs
        if study.get_trials(deepcopy=False):
            _refuse_changes(folder, begun, given, stored)
            return cls(folder)
        study.set_user_attr("config", given)
        study.set_user_attr("space", stored)
        store = cls(folder)
        params = {it.name: default[it.name] for it in space if default[it.name] in it}
        store._enqueue({"number": 0, "options": {}}, params)
        return store

    @cached_property
    def space(self) -> tuple[Dimension, ...]:
        """The search space."""
        return space_from_json(self._study.user_attrs["space"])

    @cached_property
    def config(self) -> TrainConfig:
        """Options of all trials."""
        config = with_options(TrainConfig(), self._study.user_attrs["config"])
        return replace(config, out=None, minutes=None)  # earlier versions stored the search's own

    def trials(self) -> list[Trial]:
        """Return every trial once, by number; for a restarted trial, the last attempt."""
        found = {}
        for it in self._study.get_trials(deepcopy=False):
            trial = _trial(it)
            if trial.state != "failed" or trial.error:
                found[trial.number] = trial
        return [found[number] for number in sorted(found)]

    def begin(self, seed: int) -> tuple[Any, Trial]:
        """Start the next trial: a waiting one or, failing that, one suggested by the sampler.

        Returns:
            Optuna's trial, for reporting, and the :class:`Trial`.
        """
        with exclusive(self.folder / _ASKING):
            space, state = self.space, self._optuna.trial.TrialState.WAITING
            # `ask` below takes the first of them.
            waiting = self._study.get_trials(deepcopy=False, states=(state,))
            if waiting:
                params = dict(_trial(waiting[0]).params)
            else:
                begun = self.trials()
                number = 1 + max(it.number for it in begun)
                (asked,) = suggest(
                    _points(begun, space),
                    space,
                    1,
                    seed=seed + number,
                    start=START,
                    taken=[it.params for it in begun],
                )
                params = {it.name: it.rounded(asked[it.name]) for it in space}
                self._enqueue({"number": number, "options": params}, params)
            within = distributions([it for it in space if it.name in params])
            trial = self._study.ask(within)
        known = trial.user_attrs
        return trial, Trial(known["number"], "running", known["options"], trial.params)

    def complete(self, trial: Any, score: float) -> None:
        """Store the score of a completed trial."""
        self._study.tell(trial, score)

    def prune(self, trial: Any) -> None:
        """Mark a trial as pruned: it was stopped early because it is worse than the median."""
        self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def fail(self, trial: Any, error: str) -> None:
        """Store why a trial failed; it is not restarted."""
        trial.set_user_attr("error", error)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def retry_default(self) -> None:
        """Requeue the default trial if it failed: all others are compared with it."""
        default = next((it for it in self.trials() if it.number == 0), None)
        if default is not None and default.state == "failed":
            self._enqueue({"number": 0, "options": {}}, default.params)

    def requeue_lost(self, *, crashed: bool = False) -> int:
        """Requeue all running trials; call it only while no process runs one.

        Args:
            crashed: Whether they crashed their process; if so, the number of attempts is limited.

        Returns:
            The number of lost trials.
        """
        state = self._optuna.trial.TrialState
        lost = self._study.get_trials(deepcopy=False, states=(state.RUNNING,))
        states = {it.number: it.state for it in self.trials()}
        for it in lost:
            # Queued before its loss is noted: a kill in between must not lose it for good.
            if states[it.user_attrs["number"]] == "running":
                self._queue_again(it, crashed)
            self._study.tell(it.number, state=state.FAIL)
        return len(lost)

    def _queue_again(self, trial: Any, crashed: bool) -> None:
        kept = {key: trial.user_attrs[key] for key in ("number", "options")}
        attempt = trial.user_attrs.get("attempt", 1) + crashed
        # With the same parameters: chosen by Optuna or, for the default, in the space.
        params = _trial(trial).params
        if attempt <= ATTEMPTS:
            self._enqueue({**kept, "attempt": attempt}, params)
            return
        error = f"its process ended {ATTEMPTS} times"
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.FAIL,
                user_attrs={**kept, "error": error},
                system_attrs={"fixed_params": params},
            )
        )

    def _enqueue(self, attributes: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        self._study.enqueue_trial(dict(params), user_attrs=dict(attributes))


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the first complete trial with the best score; None if no trial is complete."""
    complete = [it for it in trials if it.state == "complete" and it.score is not None]
    return max(complete, key=lambda it: it.score or 0.0, default=None)


def untried(trials: Sequence[Trial], space: Sequence[Dimension]) -> float:
    """Return the number of trials until every point of the space is tried; may be infinite."""
    names = [it.name for it in space]
    points = {tuple(map(it.params.get, names)) for it in trials if len(it.params) == len(names)}
    unfinished = sum(not it.finished for it in trials)
    return math.prod(it.size for it in space) - len(points) + unfinished


def _points(trials: Sequence[Trial], space: Sequence[Dimension]) -> list[Point]:
    """Return the sampler's data, on the scale of the complete trials.

    A pruned trial counts as at most their median: its score is its best until it was pruned. A
    failed one counts as the worst of them, a running one as their mean.
    """
    scores = [it.score for it in trials if it.state == "complete" and it.score is not None]
    if not scores:
        return []
    median = statistics.median(scores)
    assumed = {"failed": min(scores), "running": statistics.fmean(scores)}
    points: list[Point] = []
    for it in trials:
        if len(it.params) < len(space):
            continue
        if it.state in assumed:
            points.append((it.params, assumed[it.state]))
        elif it.state in ("complete", "pruned") and it.score is not None:
            points.append((it.params, min(it.score, median) if it.state == "pruned" else it.score))
    return points


def _trial(stored: Any) -> Trial:
    names: dict[str, State] = {
        "COMPLETE": "complete",
        "PRUNED": "pruned",
        "FAIL": "failed",
        "RUNNING": "running",
        "WAITING": "waiting",
    }
    state, attributes = names[stored.state.name], stored.user_attrs
    curve = dict(stored.intermediate_values)
    score = stored.value if state == "complete" else max(curve.values(), default=None)
    return Trial(
        attributes["number"],
        state,
        attributes["options"],
        # A trial that waits, or was killed as it began, has planned parameters only.
        {**stored.system_attrs.get("fixed_params", {}), **stored.params},
        None if score is None or not math.isfinite(score) else score,
        curve,
        None if stored.duration is None else stored.duration.total_seconds(),
        attributes.get("error", ""),
    )


def _storage(optuna: Any, folder: Path, **options: Any) -> Any:
    path = (folder / DATABASE).absolute()

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_PATIENCE, check_same_thread=False)

    # Not by URL: a path may hold characters with a special meaning in URLs.
    return optuna.storages.RDBStorage(
        f"sqlite:///{DATABASE}", engine_kwargs={"creator": connect}, **options
    )


def _refuse_changes(
    folder: Path,
    begun: Mapping[str, Any],
    config: Mapping[str, Any],
    space: Sequence[Mapping[str, Any]],
) -> None:
    for name, value in config.items():
        before = begun["config"].get(name)
        if before != value and name not in _MAY_CHANGE:
            raise StoreError(
                f"{name} is {value!r}, but the search in {folder} was begun with {before!r}: "
                "choose another --out"
            )
    if begun["space"] != list(space):
        listed = " ".join(map(str, space_from_json(begun["space"])))
        raise StoreError(
            f"vary is not what the search in {folder} was begun with, {listed}: choose another "
            "--out"
        )
