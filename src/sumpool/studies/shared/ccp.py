"""Shared code of the studies of chance-constrained proxies (CCP) on a testbed.

They use average pooling, as in [thesis, ch. 3]. A problem ends when validation stops improving, so
validation is frequent: every 20 steps on glyph and CIFAR collages. On glyphs, networks start from a
short run with the in-batch loss (:mod:`sumpool.studies.shared.warm_start`); elsewhere they are
pretrained. CUB follows the fair protocol or, for ablations, that of the thesis
(:func:`prepare_tuned`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.ccp import Solution
from sumpool.studies.cells import CellResult
from sumpool.studies.shared.ccp_labels import METHODS
from sumpool.studies.shared.measuring import result
from sumpool.studies.shared.pooling_study import Change, Level, pooling_study
from sumpool.studies.shared.study import RunStudy
from sumpool.studies.shared.testbed import Testbed, train_on, tuning_testbed, with_loss
from sumpool.studies.shared.warm_start import warm_start
from sumpool.training import CcpConfig, StopConfig, TrainConfig

#: Steps of a run on collages and steps between validations, in full and in quick mode.
STEPS, EVERY = 1000, 20
QUICK_STEPS, QUICK_EVERY = 4, 1


def ccp_study(
    study: str,
    levels: Sequence[Level],
    change: Change,
    quick_levels: Sequence[Level],
    losses: Sequence[str] = ("c2",),
    *,
    tuning: bool = True,
) -> RunStudy:
    """Return the ``run`` function of a CCP study; ``change`` applies a level.

    CUB follows the protocol of the ablations of [thesis, ch. 3] or, without ``tuning``, the fair
    protocol.
    """
    return pooling_study(
        study,
        lambda _, quick: quick_levels if quick else levels,
        partial(train_level, change),
        losses=losses,
        adapt=prepare_tuned if tuning else prepare,
    )


def prepare_tuned(testbed: Testbed, out_dir: Path, quick: bool) -> Testbed:
    """Apply :func:`prepare` for ablations: on CUB, three folds, validated every 25 steps."""
    stop = StopConfig(validate_every=25, patience=40)
    return tuning_testbed(prepare(testbed, out_dir, quick), stop, folds=3, zero_shot=0.0)


def prepare(testbed: Testbed, out_dir: Path, quick: bool) -> Testbed:
    """Adapt the testbed to these studies; ``out_dir`` stores the warm start for glyphs."""
    if testbed.name == "glyphs":
        testbed = warm_start(testbed, out_dir, quick=quick)
    return with_many_validations(testbed, quick)


def with_many_validations(testbed: Testbed, quick: bool) -> Testbed:
    """Return the testbed with average pooling and, except in full runs on CUB, many validations."""
    config = replace(testbed.config, pool="gap")
    if quick:
        stop = StopConfig(validate_every=QUICK_EVERY, patience=1000, max_steps=QUICK_STEPS)
        config = replace(config, stop=stop)
    elif testbed.name != "CUB":
        config = replace(config, stop=replace(config.stop, validate_every=EVERY, max_steps=STEPS))
    return replace(testbed, config=config)


def train_level(change: Change, testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and evaluate one cell.

    Its arrays are ``validations``, the step and MAP@R of each validation, and, for runs with
    proxies, ``problem_steps``, the number of steps of each problem.
    """
    trained = train_on(testbed, change(cell_config(testbed, cell), cell))
    more = problem_metrics(trained.problems, trained.config.ccp.solution)
    arrays: dict[str, Any] = {"validations": np.array(trained.validations, np.float64)}
    if trained.problems:
        arrays["problem_steps"] = problem_steps(trained.problems)
    found = result(trained, more=more, evaluated_on=testbed.evaluated_on)
    return CellResult(found.metrics, arrays)


def cell_config(testbed: Testbed, cell: Mapping[str, Any]) -> TrainConfig:
    """Return the testbed's configuration with the loss and the seed of a cell."""
    return with_loss(testbed.config, cell["loss"], cell["seed"])


def with_method(config: TrainConfig, method: str, **options: Any) -> TrainConfig:
    """Return ``config`` with one of :data:`METHODS`; ``options`` are for :class:`CcpConfig`.

    Example:
        >>> with_method(TrainConfig(), "one problem", proxies=4).ccp.problems
        1
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if method == "base":
        return replace(config, ccp=CcpConfig())
    # A problem must be able to end within the few steps of quick mode.
    if config.stop.max_steps == QUICK_STEPS:
        options = {"patience": 1, **options}
    problems = 1 if method == "one problem" else None
    return replace(config, ccp=CcpConfig(enabled=True, problems=problems, **options))


def problem_metrics(
    problems: Sequence[Mapping[str, float]], solution: Solution | None = "best"
) -> dict[str, float]:
    """Summarize the problems of a run, given as rows of problems.csv; empty without problems.

    Returns:
        ``problems``, their number; ``spread_first`` and ``spread_last``, the mean distance between
        converged proxies of a class; ``covering_radius_first`` and ``covering_radius_last``;
        ``travel_first`` and ``travel_last``, the mean distance that proxies moved after they were
        drawn; ``violation_rate``, its ``violation_bound`` and ``norm``, the mean length of
        embeddings, after the last problem; ``kept``, the share of all steps that led to solutions.
    """
    if not problems:
        return {}
    end = "best_step" if solution == "best" else "last_step"
    kept = sum(it[end] - it["first_step"] for it in problems)
    ends = {
        f"{name}_{which}": problem[name]
        for name in ("spread", "covering_radius", "travel")
        for which, problem in (("first", problems[0]), ("last", problems[-1]))
    }
    last = {name: problems[-1][name] for name in ("violation_rate", "violation_bound", "norm")}
    kept /= sum(it["last_step"] - it["first_step"] for it in problems)
    return {"problems": float(len(problems)), **ends, **last, "kept": kept}


def problem_steps(problems: Sequence[Mapping[str, float]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of steps of each problem, (K,)."""
    return np.array([it["last_step"] - it["first_step"] for it in problems], np.int64)
