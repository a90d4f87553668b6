"""What a protocol is: a grid of trainings, the settings they share, and how they are summed up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sumpool.training.config import ConfigError, TrainConfig

#: The settings of a protocol for a configuration on a data set: values by dotted option.
Prescribe = Callable[[TrainConfig, str], dict[str, Any]]


@dataclass(frozen=True)
class Member:
    """One training of a protocol.

    Attributes:
        fold: The fold of the training classes that it validates on, 1, 2, …; None trains on all.
        seed: Its seed.

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
    """A way to train and judge.

    Attributes:
        name: Its key in ``PROTOCOLS``.
        description: What it is, in a sentence or two.
        folds: Number of parts that the training classes are cut into; None trains on all of them.
        models_folds: The folds that a model is trained for, each validated on its own; empty where
            there are none.
        seeds: Trainings of each, with seeds 0, 1, …
        selection: What decides which model of a training is kept: "validation" or "test".
        judged_on: The evaluation that scores come from: "test" or "validation".
        summary: How trainings become a score: "combinations" of one seed a fold, the "mean" over
            seeds (and folds), or the "best" seed by ``monitor``.
        monitor: The metric that decides.
        heads: Poolings that stand for those of the method, by name.
        prescribe: The settings that it prescribes.
        reads_test: Whether trainings are judged on the test set too; it must be for "test".
    """

    name: str
    description: str
    folds: int | None
    models_folds: tuple[int, ...]
    seeds: int
    selection: Literal["validation", "test"]
    judged_on: Literal["validation", "test"]
    summary: Literal["combinations", "mean", "best"]
    prescribe: Prescribe = field(repr=False)
    monitor: str = "mean_average_precision_at_r"
    heads: Mapping[str, str] = field(default_factory=dict)
    reads_test: bool = True

    @property
    def note(self) -> str:
        """What must be said beside its scores; empty if there is nothing."""
        said = []
        if self.selection == "test":
            said.append("selected on the test set")
        if self.judged_on == "validation":
            said.append("on validation classes")
        return ", ".join(said)

    def members(self, seeds: int | None = None) -> list[Member]:
        """Its trainings, by fold, then by seed.

        Args:
            seeds: Trainings of each fold; None is the number of the protocol.

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
        self,
        config: TrainConfig,
        member: Member,
        data_set: str,
        *,
        given: Collection[str] = (),
    ) -> TrainConfig:
        """The configuration of one training, with everything filled in.

        What makes the protocol (fold, folds, seed, selection, the metric that decides) is set, and
        refused if ``config`` says otherwise. Settings such as batch size and learning rate are set
        where ``config`` leaves them at their defaults; others are kept, and
        :meth:`departures` names them.

        Args:
            config: The method: data, backbone, pooling, loss, and what else was asked for.
            member: Which training.
            data_set: Format of the data, such as "cub"; "default" for one without constants.
            given: Dotted names of options that were asked for though they are at their defaults.

        Raises:
            ConfigError: If an option contradicts the protocol or another one; names it.

        Example:
            >>> from sumpool.protocols import PROTOCOLS
            >>> told = PROTOCOLS["fair"].configure(TrainConfig(), Member(2, 1), "cub")
            >>> told.fold, told.folds, told.seed, told.stop.validate_every
            (2, 4, 1, 100)
        """
        # Imported here: what resolves configurations needs torch.
        from sumpool.protocols.configuring import configured

        return configured(self, config, member, data_set, frozenset(given))

    def departures(self, config: TrainConfig, data_set: str) -> dict[str, tuple[Any, Any]]:
        """Settings of a configured training that are not the protocol's, and what those are.

        Args:
            config: What :meth:`configure` gave.
            data_set: As there.

        Example:
            >>> from sumpool.protocols import PROTOCOLS
            >>> fair, small = PROTOCOLS["fair"], TrainConfig(embedding_size=64)
            >>> fair.departures(fair.configure(small, Member(1, 0), "cub"), "cub")
            {'embedding_size': (64, 128)}
        """
        from sumpool.protocols.configuring import departed

        return departed(self, config, data_set)
