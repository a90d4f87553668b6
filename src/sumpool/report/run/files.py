"""Reading the folder of a run for its page."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.report.run.folder import (
    CONFIG,
    DIGESTS,
    EVALUATION,
    GALLERY,
    LOG,
    METRICS,
    PROBLEMS,
    RUN,
    VALIDATION,
)
from sumpool.report.run.gallery import Gallery
from sumpool.report.run.gallery_files import read_gallery
from sumpool.report.run.metric_values import check_metrics, is_share
from sumpool.system.digests import check_digests
from sumpool.system.documents import load_json, load_yaml
from sumpool.system.files import StoreError

#: Columns of a CSV file by name, one value per line, NaN where a line has none.
Columns = Mapping[str, NDArray[np.float64]]

#: Columns that need a value in every line of problems.csv.
PROBLEM = ("problem", "first_step", "last_step")
#: Types of the values in run.json.
FACTS: Mapping[str, type] = {
    **dict.fromkeys(("steps", "best_step", "seed", "processes"), int),
    **dict.fromkeys(("images", "classes", "trained_classes", "versions", "machine"), dict),
    **dict.fromkeys(("started", "finished", "selection", "stopped", "device", "data_set"), str),
    "command": list,
}
#: Metrics that every metrics.json must contain.
NUMBERS = ("precision_at_1", "mean_average_precision_at_r", "queries", "queries_without_match")


@dataclass(frozen=True)
class Run:
    """A run as read from its folder.

    Attributes:
        folder: The folder.
        config: Its configuration, nested as in the file.
        config_text: The text of the configuration file.
        facts: When, where and with what it ran, how far it got and why it stopped.
        log: Losses, learning rate and speed by step; empty before the first line.
        validation: Metrics by step; empty before the first validation.
        problems: Measurements of each solved proxy problem of a run with chance-constrained
            proxies; empty for other runs, and before the first problem is solved.
        evaluations: Metrics of the best model by the name of the evaluation.
        gallery: Pictures of the run; None if they were not collected.
        notes: Damaged parts that were left out.
    """

    folder: Path
    config: Mapping[str, Any]
    config_text: str
    facts: Mapping[str, Any]
    log: Columns
    validation: Columns
    problems: Columns
    evaluations: Mapping[str, Mapping[str, float]]
    gallery: Gallery | None
    notes: tuple[str, ...]

    def option(self, name: str) -> Any:
        """Return the value of an option by its dotted name; None if the configuration lacks it."""
        value: Any = self.config
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    @property
    def selection(self) -> str:
        """The set that the model was selected on: "validation" or "test"."""
        return str(self.facts.get("selection") or self.option("selection") or "validation")

    @property
    def best_step(self) -> int | None:
        """The step whose model was kept; None before the first validation."""
        recorded = self.facts.get("best_step")
        if recorded:  # 0 before the first validation
            return int(recorded)
        line = self._best_line()
        return None if line is None else int(self.validation["step"][line])

    def scores(self, name: str) -> Mapping[str, float] | None:
        """Return the metrics of an evaluation, or those logged in training if they selected it."""
        if name in self.evaluations or name != self.selection:
            return self.evaluations.get(name)
        line = self._best_line()
        if line is None:
            return None
        values = {column: float(values[line]) for column, values in self.validation.items()}
        return {column: value for column, value in values.items() if np.isfinite(value)}

    @property
    def before_training(self) -> Mapping[str, float] | None:
        """Metrics of the validation at step 0; None if there was none."""
        if not self.validation or self.validation["step"][0] != 0:  # sorted by step
            return None
        first = {column: float(values[0]) for column, values in self.validation.items()}
        return {column: value for column, value in first.items() if np.isfinite(value)}

    def _best_line(self) -> int | None:
        scores = self.validation.get(str(self.option("stop.monitor")))
        if scores is None:
            scores = self.validation.get("mean_average_precision_at_r")
        if scores is None:
            return None
        scores = np.where(self.validation["step"] > 0, scores, np.nan)  # step 0 is never selected
        if not np.isfinite(scores).any():
            return None
        step = self.facts.get("best_step") or None
        lines = np.flatnonzero(self.validation["step"] == step)
        return int(lines[-1]) if len(lines) else int(np.nanargmax(scores))


def read_run(folder: Path) -> Run:
    """Read a run, finished or not.

    Raises:
        StoreError: If the folder holds no run, or a file in it is damaged; the message names it.
            A torn last line of a CSV file, as a killed run leaves it, is skipped and noted.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder} is no folder")
    missing = [name for name in (RUN, CONFIG) if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} holds no run: {' and '.join(missing)} missing")
    check_digests(folder, DIGESTS, (CONFIG, RUN, LOG, VALIDATION, PROBLEMS, EVALUATION, GALLERY))
    config_path = folder / CONFIG
    try:
        config_text = config_path.read_text(encoding="utf-8")
        config = load_yaml(config_text)
    except (OSError, ValueError) as error:
        raise StoreError(f"{config_path} is damaged: {error}") from error
    if not isinstance(config, dict):
        raise StoreError(f"{config_path} is damaged: it holds no options")
    notes: list[str] = []
    evaluations = {
        path.parent.name: _read_metrics(path)
        for path in sorted((folder / EVALUATION).glob(f"*/{METRICS}"))
    }
    return Run(
        folder=folder,
        config=config,
        config_text=config_text,
        facts=_read_facts(folder / RUN),
        log=_read_csv(folder / LOG, ("step",), notes),
        validation=_read_validation(folder / VALIDATION, notes),
        problems=_read_csv(folder / PROBLEMS, PROBLEM, notes),
        evaluations=evaluations,
        gallery=read_gallery(folder / GALLERY),
        notes=tuple(notes),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = load_json(path)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged: it holds {type(value).__name__}, not an object")
    return value


def _read_facts(path: Path) -> dict[str, Any]:
    facts = _read_json(path)
    for name, kind in FACTS.items():
        value = facts.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise StoreError(f"{path} is damaged: {name} is {value!r}")
        if isinstance(value, int) and value < 0:
            raise StoreError(f"{path} is damaged: {name} is {value}, less than 0")
    return facts


def _read_validation(path: Path, notes: list[str]) -> Columns:
    columns = _read_csv(path, ("step",), notes)
    for name, values in columns.items():
        wrong = values[(values < 0) | (values > (1 if is_share(name) else np.inf))]
        if len(wrong):
            raise StoreError(f"{path} is damaged: {name} is {wrong[0]:g}")
    return columns


def _read_metrics(path: Path) -> dict[str, float]:
    stored = _read_json(path)
    try:
        check_metrics({name: stored.get(name) for name in (*NUMBERS, *stored)})
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    return {name: float(value) for name, value in stored.items()}


def _read_csv(path: Path, needed: tuple[str, ...], notes: list[str]) -> Columns:
    """Read the columns of a CSV file, sorted by the first needed one, such as the step.

    Of lines with the same value in it, the last counts. Needed columns have a number in every line.
    """
    if not path.is_file():
        return {}
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    lines = list(csv.reader(text.splitlines()))
    if not lines:
        return {}
    header, *body = lines
    missing = [name for name in needed if name not in header]
    if missing:
        named = ",".join(header)
        raise StoreError(f"{path} is damaged: its first line, {named!r}, names no {missing[0]}")
    places = [header.index(name) for name in needed]
    rows: dict[float, list[float]] = {}
    for number, line in enumerate(body, 2):
        try:
            values = [float(cell) if cell else np.nan for cell in line]
            whole = len(values) == len(header) and all(np.isfinite(values[it]) for it in places)
        except ValueError:
            whole = False
        torn = number == len(lines) and not text.endswith("\n")
        if torn:
            notes.append(f"{path.name}: the last line is torn and left out.")
        elif whole:
            rows[values[places[0]]] = values
        else:
            raise StoreError(
                f"line {number} of {path} is damaged: {','.join(line)!r} does not hold a number "
                f"for each of {','.join(header)}"
            )
    table = np.array([rows[key] for key in sorted(rows)]).reshape(-1, len(header))
    columns = dict(zip(header, table.T, strict=True))
    kept = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    return kept if rows else {}
