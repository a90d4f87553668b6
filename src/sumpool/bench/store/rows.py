"""A row of a benchmark: the results of a finished cell, stored as one Parquet file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sumpool.report.run.metric_values import check_metrics
from sumpool.report.run.option_names import current_name

_TYPES = {
    "str": pa.string(),
    "int": pa.int64(),
    "int | None": pa.int64(),
    "float": pa.float64(),
    "Mapping[str, float]": pa.map_(pa.string(), pa.float64()),
}


@dataclass(frozen=True)
class BenchRow:
    """One finished cell.

    Attributes:
        id: Identity of the cell.
        protocol: Name of the protocol.
        data_set: Name of the data set.
        backbone: Name of the network.
        loss: Loss as shown in tables, see :attr:`sumpool.bench.BenchCell.loss`.
        method: Label of the method.
        fold: Fold used for validation; None if all classes are trained on.
        seed: The seed.
        config: All options by dotted name, as JSON.
        versions: Versions of Python and of packages, as JSON.
        device: Device it was trained on, such as "cpu" or "NVIDIA H200".
        started: Start of the first attempt, ISO 8601.
        duration_s: Seconds of training and evaluation, over all attempts that were resumed.
        attempts: Number of times it was started or resumed.
        steps: Number of training steps.
        best_step: Step of the selected model.
        stopped: Why training ended.
        metrics: Metrics, named "validation.…" and "test.…".
        folder: Run folder, relative to the folder of the benchmark.
    """

    id: str
    protocol: str
    data_set: str
    backbone: str
    loss: str
    method: str
    fold: int | None
    seed: int
    config: str
    versions: str
    device: str
    started: str
    duration_s: float
    attempts: int
    steps: int
    best_step: int
    stopped: str
    metrics: Mapping[str, float] = field(hash=False)
    folder: str

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Protocol, data set, network, loss and method."""
        return self.protocol, self.data_set, self.backbone, self.loss, self.method

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key of rows."""
        return *self.key, -1 if self.fold is None else self.fold, self.seed, self.id

    @property
    def options(self) -> dict[str, Any]:
        """All options by their current dotted names."""
        return {current_name(name): value for name, value in json.loads(self.config).items()}


#: The columns of a row, in the order of its attributes.
SCHEMA = pa.schema(
    [
        pa.field(it.name, _TYPES[str(it.type)], nullable=str(it.type).endswith("None"))
        for it in fields(BenchRow)
    ]
)


#: Key of the row's digest in the metadata of the file.
DIGEST = b"sumpool_row_sha256"


class NotARowError(ValueError):
    """A file is not the row of a cell; the message says why."""


def encode_row(row: BenchRow) -> bytes:
    """Return the content of the Parquet file of ``row``."""
    return encode_rows([row], {DIGEST: _digest(row)})


def encode_rows(
    rows: Iterable[BenchRow],
    metadata: Mapping[bytes, bytes] | None = None,
    compression: str = "snappy",
) -> bytes:
    """Return the content of a Parquet file of ``rows``, in the given order."""
    values = [{**asdict(row), "metrics": list(row.metrics.items())} for row in rows]
    buffer = pa.BufferOutputStream()
    table = pa.Table.from_pylist(values, schema=SCHEMA.with_metadata(metadata))
    pq.write_table(table, buffer, compression=compression, write_page_checksum=True)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def read_row(path: Path) -> BenchRow:
    """Read the row in the file ``path``, which is named after its cell.

    Rows of earlier versions have no digest; in these, only numbers out of range are detected.

    Raises:
        NotARowError: If the file is torn, damaged, or not a row.
    """
    rows, metadata = _read_table(path)
    if len(rows) != 1:
        raise NotARowError(f"it holds {len(rows)} rows")
    (row,) = rows
    if row.id != path.stem:
        raise NotARowError(f"it is the row of {row.id}")
    try:
        digest = metadata.get(DIGEST)
        if digest is not None and digest != _digest(row):
            raise ValueError("it has another digest than when it was written")
        _check(row)
    except (TypeError, ValueError) as error:
        raise NotARowError(f"it is damaged: {error}") from error
    return row


def rows_of_table(path: Path) -> list[BenchRow]:
    """Read the rows in the file ``path``, which holds any number of them.

    Raises:
        NotARowError: If the file is torn, damaged, or not a file of rows.
    """
    rows, _ = _read_table(path)
    try:
        for row in rows:
            _check(row)
    except (TypeError, ValueError) as error:
        raise NotARowError(f"it is damaged: {error}") from error
    return rows


def _read_table(path: Path) -> tuple[list[BenchRow], Mapping[bytes, bytes]]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        rows = [BenchRow(**values) for values in table.to_pylist(maps_as_pydicts="strict")]
    except (OSError, ValueError, TypeError, KeyError, MemoryError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotARowError(reason) from error
    for row in rows:
        names = (it.name for it in fields(row) if it.name != "fold")
        if missing := [name for name in names if getattr(row, name) is None]:
            raise NotARowError(f"it lacks {', '.join(missing)}")
    return rows, table.schema.metadata or {}


def _digest(row: BenchRow) -> bytes:
    # As floats, which is how numbers are read back.
    metrics = {name: float(value) for name, value in row.metrics.items()}
    values = {**asdict(row), "metrics": metrics, "duration_s": float(row.duration_s)}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _check(row: BenchRow) -> None:
    """Raise a ValueError if the values cannot be those of a run."""
    for name, text in (("config", row.config), ("versions", row.versions)):
        if not isinstance(json.loads(text), dict):
            raise ValueError(f"{name} is {text!r}")
    counts = {"steps": row.steps, "best_step": row.best_step, "attempts": row.attempts}
    for name, value in {**counts, "duration_s": row.duration_s}.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}")
    check_metrics(row.metrics)
