"""Where to look next: Optuna's sampler with a Gaussian process, from what is known alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sumpool.training.config import ConfigError
from sumpool.tune.space import Dimension

#: Random points that are tried in place of one that is known.
TRIES = 100
#: Values of options by name, and the score they gave.
Point = tuple[Mapping[str, Any], float]


def import_optuna(what: str) -> Any:
    """Optuna, which logs only errors from then on; ConfigError if it is not installed.

    Args:
        what: What needs it, in words.
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
    """The space as Optuna describes it."""
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
    points: Sequence[Point], space: Sequence[Dimension], count: int, *, seed: int, start: int = 1
) -> list[dict[str, Any]]:
    """Where to look next for a larger score: values by option, of ``count`` new points.

    The sampler is made anew each time: what it suggests depends on the arguments alone. A random
    point takes the place of one that is known, unless there is no other.

    Args:
        points: What is known.
        space: What may be varied.
        count: How many points.
        seed: Seed of the sampler.
        start: Points that must be known before the process chooses; until then they are random.
    """
    optuna, space_of = import_optuna("a search"), distributions(space)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=start)
    search = optuna.create_study(direction="maximize", sampler=sampler)
    for params, value in points:
        search.add_trial(
            optuna.trial.create_trial(params=dict(params), distributions=space_of, value=value)
        )
    chance = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    known = [dict(params) for params, _ in points]
    for _ in range(count):
        asked = dict(search.ask(space_of).params)
        for _ in range(TRIES):
            if asked not in known:
                break
            asked = dict(chance.ask(space_of).params)
        known.append(asked)
    return known[len(points) :]
