"""Suggest new points with Optuna's Gaussian process sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sumpool.training.config import ConfigError
from sumpool.tune.space import Dimension

#: Random points to try before a known point is suggested again.
TRIES = 100
#: Option values by name, and their score.
Point = tuple[Mapping[str, Any], float]


def import_optuna(what: str) -> Any:
    """Import Optuna and limit its logging to errors; ConfigError if it is not installed.

    Args:
        what: The feature that needs it, for the error message.
    """
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            f"{what} needs Optuna, which is not installed: install sumpool[tune]"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def distributions(space: Sequence[Dimension]) -> dict[str, Any]:
    """Convert the space to Optuna's distributions."""
    known = import_optuna("a search").distributions
    return {
        it.name: known.CategoricalDistribution(it.choices)
        if it.choices
        else known.IntDistribution(int(it.low), int(it.high), log=it.log)
        if it.whole
        else known.FloatDistribution(it.low, it.high, log=it.log)
        for it in space
    }


def suggest(
    points: Sequence[Point],
    space: Sequence[Dimension],
    count: int,
    *,
    seed: int,
    start: int = 1,
    taken: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Suggest ``count`` new points that may score higher, as values by option.

    The sampler is created anew for each call, so suggestions depend on the arguments alone. A known
    or taken point is replaced by a random new one, if one is found in :data:`TRIES` draws.

    Args:
        points: Known points with their scores.
        space: The search space.
        count: Number of points.
        seed: Seed of the sampler.
        start: Known points needed to use the Gaussian process; with fewer, points are random.
        taken: Points without a score that are not to be suggested either.
    """
    optuna, space_of = import_optuna("a search"), distributions(space)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=start)
    search = optuna.create_study(direction="maximize", sampler=sampler)
    for params, value in points:
        search.add_trial(
            optuna.trial.create_trial(params=dict(params), distributions=space_of, value=value)
        )
    chance = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    known = [*map(dict, taken), *(dict(params) for params, _ in points)]
    found = []
    for _ in range(count):
        asked = dict(search.ask(space_of).params)
        for _ in range(TRIES):
            if asked not in known:
                break
            asked = dict(chance.ask(space_of).params)
        known.append(asked)
        found.append(asked)
    return found
