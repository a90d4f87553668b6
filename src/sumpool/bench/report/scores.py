"""Scores of a benchmark as its tables have them, on disk in one JSON file.

A score is what a protocol makes of many trainings: a mean with its spread. A gain is what one
method has over another, paired by fold and seed, with a confidence interval.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from sumpool.system.files import StoreError, write_atomic

#: Name of the file in the folder of a benchmark.
SCORES = "scores.json"

Entry = TypeVar("Entry", "Score", "Gain", "Incomplete")


@dataclass(frozen=True)
class Score:
    """One number of a table.

    Attributes:
        protocol: ``fair``, ``conventional`` or ``tuning``.
        data_set: ``cub``, ``cars196``, ``sop``, ``inshop``, or the name of another one.
        backbone: Name of the network.
        loss: A key of ``sumpool.losses.LOSSES``.
        method: Pooling and what comes with it, such as ``gsp+zs`` or ``ccp+gap``.
        dimension: How many dimensions were searched: 128 of one model, 512 of four side by side.
        metric: Such as ``mean_average_precision_at_r``.
        mean: Mean over the combinations, as a share of 1.
        std: Their standard deviation; 0 of a single one.
        count: How many combinations of trainings were averaged over.
        note: What a reader must know, such as "selected on the test set".

    Example:
        >>> key = ("fair", "cub", "bn_inception", "c2", "gap", 128, "precision_at_1")
        >>> Score(*key, mean=0.57, std=0.004, count=81).mean
        0.57
    """

    protocol: str
    data_set: str
    backbone: str
    loss: str
    method: str
    dimension: int
    metric: str
    mean: float
    std: float
    count: int
    note: str = ""

    def __post_init__(self) -> None:
        """Check that the numbers are numbers."""
        _check_finite(self, "mean", "std")
        _check_count(self)
        if self.std < 0:
            raise ValueError(f"std must not be negative, got {self.std} in {self}")


@dataclass(frozen=True)
class Gain:
    """What a method has over another one, paired by fold and seed.

    Attributes:
        protocol: As in :class:`Score`, and so are the next three.
        data_set: Name of the data set.
        backbone: Name of the network.
        loss: A key of ``sumpool.losses.LOSSES``.
        method: The method.
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

    protocol: str
    data_set: str
    backbone: str
    loss: str
    method: str
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
        _check_finite(self, "mean", "low", "high", "confidence")
        _check_count(self)
        if self.low > self.high:
            raise ValueError(f"low must not exceed high, got {self.low} and {self.high} in {self}")


@dataclass(frozen=True)
class Incomplete:
    """A group of trainings that is not finished, so that there is no score of it.

    Attributes:
        protocol: As in :class:`Score`, and so are the next four.
        data_set: Name of the data set.
        backbone: Name of the network.
        loss: A key of ``sumpool.losses.LOSSES``.
        method: Label of the method.
        done: How many trainings are finished.
        wanted: How many the protocol needs.
    """

    protocol: str
    data_set: str
    backbone: str
    loss: str
    method: str
    done: int
    wanted: int


def write_scores(
    path: Path,
    scores: Sequence[Score],
    gains: Sequence[Gain] = (),
    incomplete: Sequence[Incomplete] = (),
) -> Path:
    """Write scores and gains to ``path`` as JSON, whole or not at all.

    Args:
        path: The file; folders on the way to it are made.
        scores: The scores.
        gains: The gains.
        incomplete: Groups without a score, which tables show as missing.

    Returns:
        ``path``.
    """
    stored = {
        "scores": [asdict(one) for one in scores],
        "gains": [asdict(one) for one in gains],
        "incomplete": [asdict(one) for one in incomplete],
    }
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
        stored = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} holds no scores: {error}") from error
    if not isinstance(stored, dict) or not {"scores", "gains"} <= set(stored):
        raise StoreError(f"{path} holds no scores: scores and gains are expected in it")
    return stored


def _entry(kind: type[Entry], values: Mapping[str, Any], path: Path) -> Entry:
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        names = ", ".join(field.name for field in fields(kind))
        raise StoreError(
            f"{path}: {values} is not a {kind.__name__.lower()} ({error}); expected are {names}"
        ) from error


def _check_finite(entry: Score | Gain, *names: str) -> None:
    for name in names:
        value = getattr(entry, name)
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value} in {entry}")


def _check_count(entry: Score | Gain) -> None:
    if entry.count < 1:
        raise ValueError(f"count must be at least 1, got {entry.count} in {entry}")
