"""Assemble the files of an index from kept images and new parts, replacing the header last."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sumpool.data import BrokenImageError, DataError
from sumpool.search.folder import (
    SCHEMA,
    Header,
    file_digest,
    open_vectors,
    remove_unused,
    write_header,
    write_images,
)
from sumpool.search.parts import PART_SCHEMA, Part, read_part
from sumpool.search.source import Source, Stamp
from sumpool.search.threshold import calibrate
from sumpool.system.files import StoreError, atomic_path

#: Rows copied at a time.
_ROWS = 65_536


@dataclass(frozen=True)
class Changes:
    """Result of an update.

    Attributes:
        added: Number of new images.
        changed: Number of images whose content changed.
        removed: Number of images that are gone or no longer readable.
        kept: Number of images whose vectors were kept.
        skipped: Name and reason of each image that cannot be read.
    """

    added: int
    changed: int
    removed: int
    kept: int
    skipped: tuple[tuple[str, str], ...]


@dataclass
class Plan:
    """Which images of a source to keep and which to embed.

    Attributes:
        kept: Current stamps and labels of the images whose vectors are kept, by name.
        missing: Indices in the source of the images to embed.
        present: Names of all images.
    """

    kept: dict[str, tuple[Stamp, str | None]]
    missing: list[int]
    present: set[str]


def assemble(
    folder: Path, header: Header, source: Source, old: pa.Table, plan: Plan, parts: Sequence[Part]
) -> Changes:
    """Join kept and embedded images; replace the header once everything is on disk.

    Args:
        folder: Folder of the index, locked.
        header: Its header.
        source: The images.
        old: The previous image table.
        plan: Which images are kept.
        parts: The embedded parts.
    """
    pool, new, skipped = _embedded(folder, source, old, parts)
    rows: list[tuple[int, int, Stamp, str | None]] = []  # row in the pool, id, stamp, label
    changed = 0
    names, ids = old["path"].to_pylist(), old["id"].to_pylist()
    for place, (name, id) in enumerate(zip(names, ids, strict=True)):
        if name in plan.kept:
            rows.append((place, id, *plan.kept[name]))
        elif name in new:
            found, stamp, label = new.pop(name)
            rows.append((found, id, stamp, label))
            changed += 1
    removed, added = len(old) - len(rows), len(new)
    for number, (found, stamp, label) in enumerate(new.values(), header.next_id):
        rows.append((found, number, stamp, label))
    if not rows:
        reason = f": {BrokenImageError.of(skipped)}" if skipped else ""
        raise DataError(f"no image is left in {header.data}{reason}")
    result = Changes(added, changed, removed, len(plan.kept), tuple(skipped))
    order = np.array([row[0] for row in rows])
    table = _table(pool.take(order), rows)
    if table.equals(old) and result.skipped == header.skipped:
        remove_unused(folder, header, old)
        return result
    following = replace(
        header,
        generation=_generation(header, table),
        next_id=header.next_id + added,
        count=len(rows),
        skipped=result.skipped,
    )
    _join_vectors(folder, header, following, order, len(old), parts)
    write_images(folder / following.images_file, table)
    following = replace(
        following,
        vectors_digest=file_digest(folder / following.vectors_file),
        images_digest=file_digest(folder / following.images_file),
    )
    vectors = open_vectors(folder, following)
    if header.calibrated_on == "index":
        value, meaning = calibrate(vectors, table["label"].to_pylist())
        following = replace(following, threshold=value, threshold_meaning=meaning)
    write_header(folder, following)
    remove_unused(folder, following, table)
    return result


def _embedded(
    folder: Path, source: Source, old: pa.Table, parts: Sequence[Part]
) -> tuple[pa.Table, dict[str, tuple[int, Stamp, str | None]], list[tuple[str, str]]]:
    """Pool the old and new rows; also return new images by name, and unreadable ones."""
    columns = ["path", "width", "height", "content_hash", "z"]
    schema = pa.schema(map(PART_SCHEMA.field, columns))  # unreadable images have no size
    tables, place = [old.select(columns).cast(schema)], len(old)
    new: dict[str, tuple[int, Stamp, str | None]] = {}
    skipped = []
    for part in parts:
        table = read_part(folder, part)
        if table is None:
            raise StoreError(f"{folder} was changed while it was updated: run the update again")
        reasons = table["reason"].to_pylist()
        tables.append(table.select(columns))
        for row, (name, reason) in enumerate(zip(part.names, reasons, strict=True)):
            if reason is None:
                new[name] = (place + row, part.stamps[row], source.label(part.indices[row]))
            else:
                skipped.append((name, reason))
        place += len(table)
    return pa.concat_tables(tables), new, skipped


def _table(content: pa.Table, rows: list[tuple[int, int, Stamp, str | None]]) -> pa.Table:
    further = {
        "id": [row[1] for row in rows],
        "bytes": [row[2].bytes for row in rows],
        "mtime_ns": [row[2].mtime_ns for row in rows],
        "label": [row[3] for row in rows],
    }
    arrays = [
        pa.array(further[field.name], field.type) if field.name in further else content[field.name]
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA).combine_chunks()


def _generation(header: Header, table: pa.Table) -> str:
    """Name derived from the images, their order and the model."""
    digest = hashlib.sha256(header.model_digest.encode())
    for name in SCHEMA.names[:-1]:
        digest.update(repr(table[name].to_pylist()).encode())
    return digest.hexdigest()[:16]


def _join_vectors(
    folder: Path,
    header: Header,
    following: Header,
    order: NDArray[np.int64],
    kept: int,
    parts: Sequence[Part],
) -> None:
    """Write the vectors; ``order`` indexes the ``kept`` rows of the old file, then the parts."""
    shape = (len(order), header.dim)
    with atomic_path(folder / following.vectors_file) as aside:
        out = np.lib.format.open_memmap(aside, mode="w+", dtype=np.float32, shape=shape)
        rows = np.flatnonzero(order < kept)
        before = open_vectors(folder, header) if len(rows) else out
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            out[some] = before[order[some]]
        for part in parts:
            rows = np.flatnonzero((order >= kept) & (order < kept + len(part.names)))
            if len(rows):
                out[rows] = _vectors(folder, part, header.dim)[order[rows] - kept]
            kept += len(part.names)
        out.flush()
        del out


def _vectors(folder: Path, part: Part, dim: int) -> NDArray[np.float32]:
    """Vectors of a part, (n, D), zero where an image could not be read."""
    table = read_part(folder, part)
    assert table is not None  # read a moment ago, under the lock
    column = table["vector"].combine_chunks()
    there = np.asarray(column.is_valid())
    vectors = np.zeros((len(table), dim), np.float32)
    vectors[there] = column.flatten().to_numpy().reshape(-1, dim)
    return vectors
