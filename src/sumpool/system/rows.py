"""Storage of study results: rows in one append-only file, arrays beside it.

A study computes cells (say, a method with a seed). A finished cell is a line of ``rows.jsonl`` and,
where a figure needs more than numbers, one file under ``arrays/``. A line reaches the disk before
the next cell begins, so an interrupted study keeps every finished cell and resumes from there.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.system.files import StoreError, write_atomic

ROWS = "rows.jsonl"
ARRAYS = "arrays"
#: Key of the digest of a line's other values.
_DIGEST = "sha256"
#: Packages whose versions are recorded in every row.
RECORDED = ("sumpool", "torch", "numpy")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One finished cell of a study.

    Attributes:
        study: Name of the study.
        settings: Settings shared by all cells of the folder: sizes, rates, margins.
        cell: Factors that identify the cell, such as method and seed.
        metrics: Measured values by name.
        versions: Versions of Python and of the packages in ``RECORDED``.
        duration_s: Wall-clock time of the cell in seconds.
        arrays: Name of the cell's file under ``arrays/``; None if it has none.
    """

    study: str
    settings: Mapping[str, Any]
    cell: Mapping[str, Any]
    metrics: Mapping[str, float]
    versions: Mapping[str, str]
    duration_s: float
    arrays: str | None


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of ``folder`` in the order they were written; a recomputed cell appears once.

    Raises:
        StoreError: If there is no ``rows.jsonl``, or a line other than the last is damaged. A torn
            last line, left by an interrupted write, is skipped with a warning.
    """
    path = folder / ROWS
    if not path.is_file():
        raise StoreError(f"{folder} holds no results: there is no {ROWS} in it")
    rows, sound = _parse(path)
    if sound < path.stat().st_size:
        logger.warning("%s: the last line is torn and left out", path)
    return rows


def read_arrays(folder: Path, row: Row) -> dict[str, NDArray[Any]]:
    """Read the arrays of ``row`` by name.

    Raises:
        StoreError: If the row has no arrays, or their file is damaged.
    """
    if row.arrays is None:
        raise StoreError(f"the cell {dict(row.cell)} of {row.study} was stored without arrays")
    path = folder / ARRAYS / row.arrays
    try:
        with np.load(io.BytesIO(path.read_bytes())) as stored:
            return dict(stored)
    except Exception as error:  # damaged files raise many kinds of errors
        raise StoreError(
            f"{path} cannot be read: remove it, and the same study computes its cell again"
        ) from error


class ResultStore:
    """Appendable store of the rows of one study with one configuration.

    Opening removes a torn last line, with a warning: its cell is then missing and will be computed
    again.

    Args:
        folder: Folder of the results; created if missing.
        study: Name of the study.
        settings: Settings shared by all cells. A folder holds results of one configuration, so that
            no table mixes two.
        force: First discard the results in the folder.

    Raises:
        StoreError: If the folder holds results of another study or configuration, or of no study.
    """

    def __init__(
        self, folder: Path, study: str, settings: Mapping[str, Any], *, force: bool = False
    ) -> None:
        self.folder = folder
        self.study = study
        self.settings: dict[str, Any] = json.loads(_canonical(settings))
        self._path = folder / ROWS
        arrays, page = folder / ARRAYS, folder / "report.html"
        foreign = arrays if arrays.exists() and any(arrays.iterdir()) else page
        if not self._path.exists() and foreign.exists():
            raise StoreError(
                f"{foreign} is not of a study, there is no {ROWS} beside it: choose another folder "
                "with --out"
            )
        arrays.mkdir(parents=True, exist_ok=True)
        self._path.touch()  # marks the folder as that of a study
        if force:
            os.truncate(self._path, 0)
            shutil.rmtree(arrays)
            arrays.mkdir()
        self._rows: dict[str, Row] = {}
        if self._path.stat().st_size:
            rows, sound = _parse(self._path)
            self._check(rows)
            self._cut(sound)
            self._rows = {_canonical(row.cell): row for row in rows}

    def find(self, cell: Mapping[str, Any]) -> Row | None:
        """Return the stored row of ``cell``; None if the cell has to be computed."""
        row = self._rows.get(_canonical(cell))
        if row is not None and row.arrays and not (self.folder / ARRAYS / row.arrays).is_file():
            logger.warning("%s: %s is missing, its cell is computed again", self.folder, row.arrays)
            return None
        return row

    def add(
        self,
        cell: Mapping[str, Any],
        metrics: Mapping[str, float],
        duration_s: float,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> Row:
        """Store a finished cell; on return it is on disk.

        Raises:
            StoreError: If a metric is not a finite number, or the cell cannot be written.
        """
        for metric, value in metrics.items():
            if not math.isfinite(value):
                raise StoreError(
                    f"the cell {dict(cell)} of {self.study} is not stored: its metric {metric} is "
                    f"{value}"
                )
        name = None
        if arrays is not None:
            name = "-".join(str(value) for value in cell.values()) + ".npz"
            self._write_arrays(name, arrays)
        row = Row(
            self.study,
            self.settings,
            json.loads(_canonical(cell)),
            dict(metrics),
            recorded_versions(),
            round(duration_s, 3),
            name,
        )
        values = asdict(row)
        values[_DIGEST] = _digest(values)
        line = json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"
        size = None
        try:
            size = self._path.stat().st_size
            with self._path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if size is not None:
                with suppress(OSError):  # a part of the line may have been written
                    os.truncate(self._path, size)
            reason = error.strerror or error
            raise StoreError(f"{self._path} could not be written: {reason}") from error
        self._rows[_canonical(cell)] = row
        return row

    def _write_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomic(self.folder / ARRAYS / name, buffer.getvalue())

    def _check(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.study != self.study:
                raise StoreError(
                    f"{self.folder} holds results of the study {row.study!r}, not {self.study!r}: "
                    "choose another folder with --out"
                )
            if row.settings != self.settings:
                names = sorted({*row.settings, *self.settings})
                changed = ", ".join(
                    f"{name} was {row.settings.get(name)} and is now {self.settings.get(name)}"
                    for name in names
                    if row.settings.get(name) != self.settings.get(name)
                )
                raise StoreError(
                    f"{self.folder} holds results of another configuration ({changed}): choose "
                    "another folder with --out, or discard them with --force"
                )

    def _cut(self, sound: int) -> None:
        if sound < self._path.stat().st_size:
            logger.warning("%s: the last line is torn, its cell is computed again", self._path)
            with self._path.open("r+b") as file:
                file.truncate(sound)
                os.fsync(file.fileno())


def recorded_versions(packages: Iterable[str] = RECORDED) -> dict[str, str]:
    """Return the versions of Python and of ``packages``, without importing them."""
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


@cache
def _version(package: str) -> str:
    return metadata.version(package)


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True, ensure_ascii=False)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(values).encode()).hexdigest()[:16]


def _parse(path: Path) -> tuple[list[Row], int]:
    """Return the rows of the file and the length of its intact part in bytes."""
    rows: dict[str, Row] = {}
    sound = 0
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            digest = values.pop(_DIGEST, None)  # earlier versions wrote none
            row = Row(**values)
            whole = line.endswith(b"\n") and digest in (None, _digest(values))
        except (ValueError, TypeError, AttributeError):
            whole = False
        if not whole:
            if number < len(lines):
                raise StoreError(
                    f"line {number} of {path} is not a row, or damaged: mend or remove that line, "
                    "or discard the results with --force"
                )
            break
        rows[_canonical(row.cell)] = row
        sound += len(line)
    return list(rows.values()), sound
