"""Scores of a benchmark as its tables have them, on disk in one JSON file.

A score is what a protocol makes of many runs: a mean with its spread. A gain is what one
method has over another, paired by fold and seed, with a confidence interval.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from sumpool.report.run.metric_values import check_metrics
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, write_atomic

#: Name of the file in the folder of a benchmark.
SCORES = "scores.json"

_PARTS = {"scores", "gains", "incomplete", "sha256"}

Entry = TypeVar("Entry", "Score", "Gain", "Incomplete")


@dataclass(frozen=True)
class MethodKey:
    """What was trained on what.

    Attributes:
        protocol: ``fair``, ``conventional``, ``tuning`` or ``tuning-ccp``.
        data_set: ``cub``, ``cars196``, ``sop``, ``inshop``, or the name of another one.
        backbone: Name of the network.
        loss: A key of ``sumpool.losses.LOSSES``.
        method: Label of the method, such as ``gsp+zs`` or ``ccp+gap``.
    """

    protocol: str
    data_set: str
    backbone: str
    loss: str
    method: str

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The five of them."""
        return self.protocol, self.data_set, self.backbone, self.loss, self.method


@dataclass(frozen=True)
class Score(MethodKey):
    """One number of a table.

    Attributes:
        dimension: How many dimensions were searched: 128 of one model, 512 of four concatenated.
        metric: Such as ``mean_average_precision_at_r``.
        mean: Mean over the combinations, as a share of 1.
        std: Their standard deviation; 0 of a single one.
        count: How many combinations of runs were averaged.
        note: What a reader must know, such as "selected on the test set".

    Example:
        >>> key = ("fair", "cub", "bn_inception", "c2", "gap", 128, "precision_at_1")
        >>> Score(*key, mean=0.57, std=0.004, count=81).mean
        0.57
    """

    dimension: int
    metric: str
    mean: float
    std: float
    count: int
    note: str = ""

    def __post_init__(self) -> None:
        """Check that the numbers are numbers."""
        _check(self, "mean", "std")
        check_metrics({self.metric: self.mean})
        if self.std < 0:
            raise ValueError(f"std must not be negative, got {self.std} in {self}")


@dataclass(frozen=True)
class Gain(MethodKey):
    """What a method has over another one, paired by fold and seed.

    Attributes:
        against: The method that it is compared with.
        dimension: How many dimensions were searched.
        metric: Such as ``mean_average_precision_at_r``.
        mean: Mean of the paired differences, as a share of 1.
        low: Lower end of the confidence interval.
        high: Upper end of the confidence interval.
        count: How many pairs.
        confidence: Level of the interval.
        note: What a reader must know, as in :class:`Score`.
    """

    against: str
    dimension: int
    metric: str
    mean: float
    low: float
    high: float
    count: int
    confidence: float = 0.95
    note: str = ""

    def __post_init__(self) -> None:
        """Check that the interval is one."""
        _check(self, "mean", "low", "high", "confidence")
        if self.low > self.high:
            raise ValueError(f"low must not exceed high, got {self.low} and {self.high} in {self}")


@dataclass(frozen=True)
class Incomplete(MethodKey):
    """A group of runs that is not finished, so that it has no score.

    Attributes:
        done: How many runs are finished.
        wanted: How many the protocol needs.
    """

    done: int
    wanted: int


def write_scores(
    path: Path,
    scores: Sequence[Score],
    gains: Sequence[Gain] = (),
    incomplete: Sequence[Incomplete] = (),
) -> Path:
    """Write scores, gains and groups without a score to ``path`` as JSON, and return ``path``."""
    stored: dict[str, Any] = {
        "scores": [asdict(one) for one in scores],
        "gains": [asdict(one) for one in gains],
        "incomplete": [asdict(one) for one in incomplete],
    }
    stored["sha256"] = _digest(stored)
    text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomic(path, text.encode())
    return path


def read_scores(path: Path) -> tuple[list[Score], list[Gain]]:
    """The scores and gains that :func:`write_scores` wrote.

    Raises:
        StoreError: If there is no such file, or it is not one of scores.
    """
    stored = _read(path)
    return (
        [_entry(Score, values, path) for values in stored["scores"]],
        [_entry(Gain, values, path) for values in stored["gains"]],
    )


def read_incomplete(path: Path) -> list[Incomplete]:
    """The groups without a score that :func:`write_scores` wrote.

    Raises:
        StoreError: As :func:`read_scores`.
    """
    return [_entry(Incomplete, values, path) for values in _read(path).get("incomplete", [])]


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        stored = load_json(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} holds no scores: {error}") from error
    if not isinstance(stored, dict) or not {"scores", "gains"} <= set(stored) <= _PARTS:
        raise StoreError(f"{path} holds no scores: scores and gains are expected in it")
    digest = stored.pop("sha256", None)  # which files of earlier versions lack
    if digest is not None and digest != _digest(stored):
        raise StoreError(
            f"{path} is damaged, or was changed: remove it, and run the same `sumpool bench` again"
        )
    if not all(isinstance(part, list) for part in stored.values()):
        raise StoreError(f"{path} holds no scores: lists are expected in it")
    return stored


def _digest(stored: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def _entry(kind: type[Entry], values: Mapping[str, Any], path: Path) -> Entry:
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        names = ", ".join(field.name for field in fields(kind))
        raise StoreError(
            f"{path}: {values} is not a {kind.__name__.lower()} ({error}); expected are {names}"
        ) from error


def _check(entry: Score | Gain, *names: str) -> None:
    for name in names:
        value = getattr(entry, name)
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value} in {entry}")
    if entry.count < 1:
        raise ValueError(f"count must be at least 1, got {entry.count} in {entry}")
