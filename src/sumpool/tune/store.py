"""The trials of a search, in an SQLite file that Optuna reads: finished ones survive any kill."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sumpool.system.files import StoreError
from sumpool.system.locks import exclusive
from sumpool.training.config import FREE_TO_CHANGE, TrainConfig, flat, with_options
from sumpool.tune.sampling import Point, distributions, import_optuna, suggest
from sumpool.tune.space import Dimension, space_from_json, space_to_json

#: The files of a search.
DATABASE, BEST, LOCK = "study.db", "best.json", ".lock"
#: Held for a moment, to choose where to look next.
_ASKING = ".asking"
_NAME = "sumpool"
#: Trials that are known before the Gaussian process chooses, and before one may be pruned.
START = 5
#: How often a trial is begun whose process ends before it does.
ATTEMPTS = 3
#: Seconds that a process waits for another one's write.
_PATIENCE = 60

State = Literal["complete", "pruned", "failed", "running", "waiting"]


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        number: Its place; 0 is the default.
        state: How far it is.
        options: What it sets, by dotted name; empty for the default.
        params: Its coordinates in the space; the default has none where it lies outside of it.
        score: The validation score of a complete trial; of a pruned one its best until then.
        curve: Validation scores by step.
        seconds: How long it took.
        error: Why it failed.
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
        """Whether nothing of it is left to do."""
        return self.state in ("complete", "pruned", "failed")


class TuneStore:
    """The folder of a search.

    Args:
        folder: The folder; :meth:`create` makes what is missing.

    Raises:
        StoreError: If it holds no search.
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
        except Exception as error:  # SQLAlchemy's, of a file that is no database
            raise StoreError(f"{folder / DATABASE} is damaged: {error}") from error

    @classmethod
    def create(
        cls,
        folder: Path,
        config: TrainConfig,
        space: Sequence[Dimension],
        default: Mapping[str, Any],
    ) -> TuneStore:
        """Open the search in ``folder``, or begin one whose trial 0 is the default.

        Args:
            folder: The folder.
            config: The options of all trials.
            space: What is varied.
            default: The values of the varied options that a run without them has.

        Raises:
            StoreError: If the folder holds a search with other options.
        """
        given, stored = flat(config), space_to_json(space)
        optuna = import_optuna("sumpool tune")
        folder.mkdir(parents=True, exist_ok=True)
        # A kill before the attributes are there leaves a study without trials: they are set again.
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
        """What is varied."""
        return space_from_json(self._study.user_attrs["space"])

    @cached_property
    def config(self) -> TrainConfig:
        """The options of all trials."""
        return with_options(TrainConfig(), self._study.user_attrs["config"])

    def trials(self) -> list[Trial]:
        """Every trial once, by number; one that was begun again counts as it was begun last."""
        found = {}
        for it in self._study.get_trials(deepcopy=False):
            trial = _trial(it)
            if trial.state != "failed" or trial.error:
                found[trial.number] = trial
        return [found[number] for number in sorted(found)]

    def begin(self, seed: int) -> tuple[Any, Trial]:
        """Begin the next trial: a waiting one, else where the sampler says.

        Returns:
            Optuna's trial, to report to, and ours.
        """
        with exclusive(self.folder / _ASKING):
            space, state = self.space, self._optuna.trial.TrialState.WAITING
            # Optuna takes the first of them.
            waiting = self._study.get_trials(deepcopy=False, states=(state,))
            if waiting:
                params = dict(_trial(waiting[0]).params)
            else:
                begun = self.trials()
                number = 1 + max(it.number for it in begun)
                (asked,) = suggest(_points(begun, space), space, 1, seed=seed + number, start=START)
                params = {it.name: it.rounded(asked[it.name]) for it in space}
                self._enqueue({"number": number, "options": params}, params)
            within = distributions([it for it in space if it.name in params])
            trial = self._study.ask(within)
        known = trial.user_attrs
        return trial, Trial(known["number"], "running", known["options"], trial.params)

    def complete(self, trial: Any, score: float) -> None:
        """Store the score of a trial that came to its end."""
        self._study.tell(trial, score)

    def prune(self, trial: Any) -> None:
        """Store that a trial was ended early: it is worse than the median."""
        self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def fail(self, trial: Any, error: str) -> None:
        """Store why a trial failed; it is not begun again."""
        trial.set_user_attr("error", error)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def retry_default(self) -> None:
        """Queue the default again if it has failed: everything is compared with it."""
        default = next((it for it in self.trials() if it.number == 0), None)
        if default is not None and default.state == "failed":
            self._enqueue({"number": 0, "options": {}}, default.params)

    def requeue_lost(self, *, crashed: bool = False) -> int:
        """Queue the trials again that no process works on any more; only while none does.

        Args:
            crashed: Whether they ended their process: then they are tried a few times only.

        Returns:
            How many there were.
        """
        state = self._optuna.trial.TrialState
        lost = self._study.get_trials(deepcopy=False, states=(state.RUNNING,))
        for it in lost:
            kept = {key: it.user_attrs[key] for key in ("number", "options")}
            attempt = it.user_attrs.get("attempt", 1) + crashed
            self._study.tell(it.number, state=state.FAIL)
            if attempt <= ATTEMPTS:
                # What Optuna chose to begin with, and the default where it lies in the space.
                self._enqueue({**kept, "attempt": attempt}, it.params)
            else:
                error = f"its process ended {ATTEMPTS} times"
                self._study.add_trial(
                    self._optuna.trial.create_trial(
                        state=state.FAIL, user_attrs={**kept, "error": error}
                    )
                )
        return len(lost)

    def _enqueue(self, attributes: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        self._study.enqueue_trial(dict(params), user_attrs=dict(attributes))


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The complete trial with the best score, the first of equals; None if there is none."""
    complete = [it for it in trials if it.state == "complete" and it.score is not None]
    return max(complete, key=lambda it: it.score or 0.0, default=None)


def _points(trials: Sequence[Trial], space: Sequence[Dimension]) -> list[Point]:
    """What the sampler learns from: failed trials are as bad as the worst, running ones average."""
    placed = [it for it in trials if len(it.params) == len(space)]
    scores = [it.score for it in placed if it.finished and it.score is not None]
    if not scores:
        return []
    assumed = {"failed": min(scores), "running": statistics.fmean(scores)}
    return [
        (it.params, it.score if it.finished and it.score is not None else assumed[it.state])
        for it in placed
        if it.state in assumed or it.score is not None
    ]


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
        # Those of a trial that waits are only planned.
        stored.params or stored.system_attrs.get("fixed_params", {}),
        None if score is None or not math.isfinite(score) else score,
        curve,
        None if stored.duration is None else stored.duration.total_seconds(),
        attributes.get("error", ""),
    )


def _storage(optuna: Any, folder: Path, **options: Any) -> Any:
    path = (folder / DATABASE).absolute()

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_PATIENCE, check_same_thread=False)

    # Not by its address: a path may hold characters that mean something in one.
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
        if before != value and name not in FREE_TO_CHANGE - {"stop.max_steps", "skip_broken"}:
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
