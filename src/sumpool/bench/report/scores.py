"""Scores and gains of a benchmark, stored in one JSON file.

A score summarizes the runs of a protocol by a mean with its spread. A gain is the difference
between two methods, paired by fold and seed, with a confidence interval.
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

#: File name in the folder of a benchmark.
SCORES = "scores.json"

_PARTS = {"scores", "gains", "incomplete", "sha256"}

Entry = TypeVar("Entry", "Score", "Gain", "Incomplete")


@dataclass(frozen=True)
class MethodKey:
    """A method, and the setting in which it is trained.

    Attributes:
        protocol: A key of ``sumpool.protocols.PROTOCOLS``.
        data_set: Name of the data set, such as ``cub`` or ``inshop``.
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
        """Protocol, data set, network, loss and method."""
        return self.protocol, self.data_set, self.backbone, self.loss, self.method


@dataclass(frozen=True)
class Score(MethodKey):
    """A score of one metric.

    Attributes:
        dimension: Dimension of the searched embeddings: 128 of one model, 512 of four concatenated.
        metric: Name of the metric, such as ``mean_average_precision_at_r``.
        mean: Mean over the combinations, as a share of 1.
        std: Their standard deviation; 0 for a single combination.
        count: Number of combinations of runs.
        note: Remarks such as "selected on the test set".

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
        """Check that the numbers are finite and in range."""
        _check(self, "mean", "std")
        check_metrics({self.metric: self.mean})
        if self.std < 0:
            raise ValueError(f"std must not be negative, got {self.std} in {self}")


@dataclass(frozen=True)
class Gain(MethodKey):
    """Gain of a method over another, paired by fold and seed.

    Attributes:
        against: Label of the other method.
        dimension: Dimension of the searched embeddings.
        metric: Name of the metric, such as ``mean_average_precision_at_r``.
        mean: Mean of the paired differences, as a share of 1.
        low: Lower end of the confidence interval.
        high: Upper end of the confidence interval.
        count: Number of pairs.
        confidence: Level of the interval.
        note: Remarks, as in :class:`Score`.
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
        """Check that the numbers are finite and the interval is in order."""
        _check(self, "mean", "low", "high", "confidence")
        if self.low > self.high:
            raise ValueError(f"low must not exceed high, got {self.low} and {self.high} in {self}")


@dataclass(frozen=True)
class Incomplete(MethodKey):
    """An unfinished group of runs, which has no score yet.

    Attributes:
        done: Number of finished runs.
        wanted: Number of runs needed.
        note: Options that were set, as in :class:`Score`.
    """

    done: int
    wanted: int
    note: str = ""


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
    text = (json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    if not path.is_file() or path.read_bytes() != text:  # the folder may be read-only
        write_atomic(path, text)
    return path


def read_scores(path: Path) -> tuple[list[Score], list[Gain], list[Incomplete]]:
    """Read the scores, gains and groups without a score written by :func:`write_scores`.

    Raises:
        StoreError: If the file is missing, damaged, or not a file of scores.
    """
    stored = _read(path)
    return (
        [_entry(Score, values, path) for values in stored["scores"]],
        [_entry(Gain, values, path) for values in stored["gains"]],
        [_entry(Incomplete, values, path) for values in stored.get("incomplete", [])],
    )


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        stored = load_json(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} holds no scores: {error}") from error
    if not isinstance(stored, dict) or not {"scores", "gains"} <= set(stored) <= _PARTS:
        raise StoreError(f"{path} holds no scores: scores and gains are expected in it")
    digest = stored.pop("sha256", None)  # missing from files of earlier versions
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
