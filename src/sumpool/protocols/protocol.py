"""The definition of a protocol: a grid of runs, their shared settings, and how they are scored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sumpool.training.config import ConfigError, TrainConfig, differences, flat, with_options

#: Options that a protocol prescribes, besides the groups ``optimizer`` and ``stop``.
SETTINGS = ("embedding_size", "batch_size", "images_per_class", "crop", "erasing")

#: Returns a protocol's settings, by dotted option name, for a configuration and a data set.
Prescribe = Callable[[TrainConfig, str], dict[str, Any]]


@dataclass(frozen=True)
class Member:
    """One run of a protocol.

    Attributes:
        fold: Fold of the training classes to validate on: 1, 2, …; None to train on all classes.
        seed: The seed of the run.

    Example:
        >>> print(Member(2, 0)), print(Member(None, 1))
        fold 2, seed 0
        seed 1
        (None, None)
    """

    fold: int | None
    seed: int

    def __str__(self) -> str:
        return f"seed {self.seed}" if self.fold is None else f"fold {self.fold}, seed {self.seed}"


@dataclass(frozen=True)
class Protocol:
    """A training and evaluation protocol.

    Attributes:
        name: Key in ``PROTOCOLS``.
        description: One or two sentences.
        folds: Number of folds of the training classes; None to train on all classes.
        models_folds: Folds that models are validated on; empty without folds.
        seeds: Runs per fold, with seeds 0, 1, …
        selection: Split that the model of a run is selected on: "validation" or "test".
        evaluated_on: Split that scores are computed on: "test" or "validation".
        summary: How runs are summarized: "combinations" of one seed per fold, the "mean" over
            seeds and folds, or the "best" seed by ``monitor``.
        monitor: Metric that models are selected by.
        heads: Replacements for the pooling of the method, by its name.
        prescribe: Function that returns the prescribed settings.
    """

    name: str
    description: str
    folds: int | None
    models_folds: tuple[int, ...]
    seeds: int
    selection: Literal["validation", "test"]
    evaluated_on: Literal["validation", "test"]
    summary: Literal["combinations", "mean", "best"]
    prescribe: Prescribe = field(repr=False)
    monitor: str = "mean_average_precision_at_r"
    heads: Mapping[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """Remark that must accompany scores; often empty."""
        remarks = []
        if self.selection == "test":
            remarks.append("selected on the test set")
        if self.evaluated_on == "validation":
            remarks.append("on validation classes")
        return ", ".join(remarks)

    def members(self, seeds: int | None = None) -> list[Member]:
        """Return the runs, ordered by fold, then by seed.

        Args:
            seeds: Runs per fold; None for the number set by the protocol.

        Raises:
            ConfigError: If ``seeds`` is less than 1.

        Example:
            >>> from sumpool.protocols import PROTOCOLS
            >>> [len(PROTOCOLS[name].members()) for name in ("fair", "conventional", "tuning")]
            [12, 3, 3]
        """
        seeds = self.seeds if seeds is None else seeds
        if seeds < 1:
            raise ConfigError(f"seeds must be at least 1, got {seeds}")
        return [
            Member(fold, seed) for fold in self.models_folds or (None,) for seed in range(seeds)
        ]

    def configure(
        self, config: TrainConfig, member: Member, data_set: str, *, given: Collection[str] = ()
    ) -> TrainConfig:
        """Return the complete configuration of one run.

        Options that define the protocol (fold, folds, seed, selection, monitored metric) are always
        set; a ``config`` that contradicts them is refused. Settings such as batch size and learning
        rate are set where ``config`` has the default; other values are kept, and
        :meth:`departures` lists them.

        Args:
            config: The method: data, backbone, pooling, loss, and other options.
            member: The run.
            data_set: Format of the data, such as "cub"; "default" for data without constants.
            given: Dotted names of options to keep even if they equal their defaults.

        Raises:
            ConfigError: If an option contradicts the protocol or another option; names it.

        Example:
            >>> from sumpool.protocols import PROTOCOLS
            >>> config = PROTOCOLS["fair"].configure(TrainConfig(), Member(2, 1), "cub")
            >>> config.fold, config.folds, config.seed, config.stop.validate_every
            (2, 4, 1, 100)
        """
        # Imported here because they need torch.
        from sumpool.losses import LOSSES
        from sumpool.training.settings import resolve

        self._check(config, member, data_set, given)
        asked = {*differences(config, TrainConfig()), *given}
        own = flat(config)
        fixed = self._fixed(member)
        for name, value in fixed.items():
            if name in asked and own[name] != value:
                raise ConfigError(
                    f"{name} is {own[name]!r}, but the {self.name} protocol trains {member} with "
                    f"{value!r}: leave it out"
                )
        wanted = self.prescribe(config, data_set)
        changes = {name: value for name, value in wanted.items() if name not in asked}
        config = with_options(config, {**changes, **fixed})
        config = replace(config, pool=self.heads.get(config.pool, config.pool))
        config = resolve(config, data_set)
        recipe = LOSSES[config.loss]
        if recipe.proxy and config.images_per_class not in (0, recipe.images_per_class):
            raise ConfigError(
                f"images_per_class is {config.images_per_class} in the {self.name} protocol, but "
                f"loss {config.loss} compares images with proxies and is trained with "
                f"{recipe.images_per_class}: choose a loss without proxies"
            )
        return config

    def departures(self, config: TrainConfig, data_set: str) -> dict[str, tuple[Any, Any]]:
        """Return settings that differ from the protocol's, as pairs (value, protocol's value).

        Args:
            config: The result of :meth:`configure`.
            data_set: The same as for :meth:`configure`.

        Example:
            >>> from sumpool.protocols import PROTOCOLS
            >>> fair, small = PROTOCOLS["fair"], TrainConfig(embedding_size=64)
            >>> fair.departures(fair.configure(small, Member(1, 0), "cub"), "cub")
            {'embedding_size': (64, 128)}
        """
        defaults, own = flat(TrainConfig()), flat(config)
        settings = {
            name: value
            for name, value in defaults.items()
            if name in SETTINGS
            or (name.startswith(("optimizer.", "stop.")) and name != "stop.monitor")
        }
        bare = with_options(config, settings)
        published = flat(self.configure(bare, Member(config.fold, config.seed), data_set))
        return {
            name: (own[name], published[name]) for name in settings if own[name] != published[name]
        }

    def _fixed(self, member: Member) -> dict[str, Any]:
        defaults = TrainConfig()
        return {
            "selection": self.selection,
            "fold": member.fold,
            "folds": defaults.folds if self.folds is None else self.folds,
            "validation": defaults.validation,
            "seed": member.seed,
            "stop.monitor": self.monitor,
            "test": self.evaluated_on == "test",
        }

    def _check(
        self, config: TrainConfig, member: Member, data_set: str, given: Collection[str]
    ) -> None:
        from sumpool.losses import LOSSES
        from sumpool.losses.recipe import DATASET_COLUMNS

        if config.recipe is not None or config.minutes is not None:
            name = "minutes" if config.recipe is None else "recipe"
            raise ConfigError(
                f"{name} is for `sumpool train`: the {self.name} protocol sets options"
            )
        if data_set not in DATASET_COLUMNS:
            raise ConfigError(
                f"data_set must be one of {', '.join(DATASET_COLUMNS)} ('default' for any other), "
                f"got {data_set!r}"
            )
        folds = self.models_folds or (None,)
        if member.fold not in folds:
            listed = ", ".join(map(str, folds))
            raise ConfigError(
                f"fold must be one of {listed} in the {self.name} protocol, got {member.fold}"
            )
        if member.seed < 0:
            raise ConfigError(f"seed must be at least 0, got {member.seed}")
        unknown = sorted(set(given) - set(flat(config)))
        if unknown:
            raise ConfigError(f"given must name options, got {', '.join(unknown)}")
        if config.loss not in LOSSES:
            raise ConfigError(f"loss must be one of {', '.join(LOSSES)}, got {config.loss!r}")
