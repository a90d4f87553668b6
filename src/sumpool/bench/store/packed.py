"""Rows of a benchmark in one Parquet file, to copy, publish or compare elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sumpool.bench.store.rows import BenchRow, NotARowError, encode_rows, rows_of_table
from sumpool.bench.store.store import ROWS, BenchStore
from sumpool.system.files import StoreError, write_atomic

#: File name in a folder of published results.
PACKED = "rows.parquet"


def write_packed(path: Path, rows: Iterable[BenchRow]) -> None:
    """Write ``rows`` to the file ``path``, in the given order."""
    write_atomic(path, encode_rows(rows, compression="zstd"))


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
