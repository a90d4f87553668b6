"""Rows of a benchmark in one Parquet file, to copy, publish or compare elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sumpool.bench.store.rows import SCHEMA, BenchRow, NotARowError, rows_of_table
from sumpool.bench.store.store import ROWS, BenchStore
from sumpool.system.files import StoreError, write_atomic

#: File name in a folder of published results.
PACKED = "rows.parquet"


def write_packed(path: Path, rows: Iterable[BenchRow]) -> None:
    """Write ``rows`` to the file ``path``, in the given order."""
    values = [{**asdict(row), "metrics": list(row.metrics.items())} for row in rows]
    buffer = pa.BufferOutputStream()
    table = pa.Table.from_pylist(values, schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    write_atomic(path, buffer.getvalue().to_pybytes())


def collect_rows(places: Sequence[Path]) -> list[BenchRow]:
    """Collect rows from benchmark folders, folders of published results, and files of rows.

    A row found in several places is returned once.

    Raises:
        StoreError: If a place has no rows.
    """
    found: dict[str, BenchRow] = {}
    for place in places:
        for row in _rows_at(place):
            found.setdefault(row.id, row)
    return sorted(found.values(), key=lambda row: row.order)


def _rows_at(place: Path) -> list[BenchRow]:
    if (place / ROWS).is_dir():
        rows = BenchStore(place).rows()
    else:
        path = place / PACKED if place.is_dir() else place
        if not path.is_file():
            raise StoreError(f"{place} has no rows: it has neither a folder {ROWS} nor a {PACKED}")
        try:
            rows = rows_of_table(path)
        except NotARowError as error:
            raise StoreError(f"{path} holds no rows of a benchmark: {error}") from error
    if not rows:
        raise StoreError(f"{place} has no rows: no cell is finished there")
    return rows
