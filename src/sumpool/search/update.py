"""Building an index, and bringing it up to date: new, changed and deleted images alone."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.data import BrokenImageError, DataError
from sumpool.models import Embedder, load
from sumpool.models.storage import load_embedder, save_embedder
from sumpool.search.folder import (
    HEADER,
    MODEL,
    SCHEMA,
    Header,
    locked,
    model_digest,
    open_vectors,
    read_header,
    read_images,
    remove_unused,
    write_header,
    write_images,
)
from sumpool.search.frozen import frozen_embedder
from sumpool.search.parts import PART_SCHEMA, Part, embed_parts, plan_parts, read_part
from sumpool.search.source import Source, Stamp
from sumpool.search.threshold import calibrate
from sumpool.system.files import StoreError, atomic_path

logger = logging.getLogger(__name__)

#: Computes missing parts; :func:`~sumpool.search.parts.embed_parts`, or a cluster's.
Compute = Callable[[Embedder, Source, Sequence[Part], Path, Header], None]
#: Rows that are copied at once.
_ROWS = 65_536


@dataclass(frozen=True)
class Changes:
    """What an update did.

    Attributes:
        added: Number of images that are new.
        changed: Number of images with other content than before.
        removed: Number of images that are gone, or cannot be read any more.
        kept: Number of images whose vectors were kept.
        skipped: Name and reason of each image that cannot be read.
    """

    added: int
    changed: int
    removed: int
    kept: int
    skipped: tuple[tuple[str, str], ...]


def begin(
    data: str | os.PathLike[str],
    out: Path,
    model: str | os.PathLike[str] | Embedder | None,
    **options: Any,
) -> None:
    """Write the model and a header without images; nothing if a build with the same options began.

    Args:
        data: Folder, CSV file or single image.
        out: Folder of the index.
        model: A model, its folder, or None for the packaged network.
        options: The options in the header.

    Raises:
        StoreError: If ``out`` holds something else, a finished index included.
    """
    if isinstance(model, Embedder):
        embedder, name = model, "a model in memory"
    elif model is None:
        embedder, name = frozen_embedder(), "pretrained"
    else:
        embedder, name = load(Path(model)), str(Path(model).absolute())
    source = Source(  # refused now rather than after the model was written
        data, **{key: options[key] for key in ("format", "split", "labels", "allow_outside")}
    )
    with locked(out):
        begun = (out / HEADER).exists()
        known = read_header(out) if begun else None
        if known is not None and known.generation is not None:
            raise StoreError(
                f"{out} is an index already: bring it up to date with sumpool index "
                f"{shlex.quote(str(out))} --update, or choose another folder"
            )
        others = [it.name for it in out.iterdir() if it.name[0] != "." and it.name != MODEL]
        if known is None and others:
            raise StoreError(f"{out} holds other files, such as {min(others)}: choose a new folder")
        save_embedder(embedder, out / MODEL)
        header = Header(
            data=str(Path(data).absolute()),
            model=name,
            model_digest=model_digest(out),
            dim=embedder.config.embedding_size,
            files=source.files,
            **options,
        )
        if known is not None and known != header:
            changed = [key for key in vars(header) if vars(header)[key] != vars(known)[key]]
            raise StoreError(
                f"{out} holds an unfinished index with other options ({', '.join(changed)}): "
                "continue with those, or choose a new folder"
            )
        if known is None:
            write_header(out, header)


def update(
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    progress: bool = True,
    compute: Compute | None = None,
) -> Changes:
    """Bring the index in ``folder`` up to date; continues what was interrupted.

    Args:
        folder: The index.
        device: Where the model runs.
        workers: Threads that decode; None is one per core.
        progress: Whether to show progress bars.
        compute: Computes the missing parts in place of this process.

    Raises:
        StoreError: If the index is damaged, or another process is changing it.
        DataError: If there are no images any more.
    """
    with locked(folder):
        header = read_header(folder)
        if model_digest(folder) != header.model_digest:
            raise StoreError(
                f"the model in {folder / MODEL} is not the one of the index: build anew"
            )
        source = Source(
            header.data,
            header.format,
            header.split,
            labels=header.labels,
            allow_outside=header.allow_outside,
        )
        old = _read_old(folder, header)
        plan = _compare(source, old, progress)
        parts = plan_parts(source, plan.missing, header)
        if parts:
            model = load_embedder(folder / MODEL, device)
            if compute is None:
                embed_parts(
                    model, source, parts, folder, header, workers=workers, progress=progress
                )
            else:
                compute(model, source, parts, folder, header)
        return _assemble(folder, header, source, old, plan, parts)


@dataclass
class _Plan:
    """Which images are taken over, with their stamps, and which are embedded."""

    kept: dict[str, tuple[Stamp, str | None]]
    missing: list[int]
    present: set[str]


def _read_old(folder: Path, header: Header) -> pa.Table:
    if header.generation is None:
        return SCHEMA.empty_table()
    return read_images(folder / header.images_file)


def _compare(source: Source, old: pa.Table, progress: bool) -> _Plan:
    columns = ("path", "bytes", "mtime_ns", "content_hash")
    known = {
        path: (Stamp(size, time), content)
        for path, size, time, content in zip(
            *(old[name].to_pylist() for name in columns), strict=True
        )
    }
    plan = _Plan({}, [], set())
    bar = tqdm(range(len(source)), "comparing", unit=" images", disable=not (progress and known))
    for index in bar:
        name = source.name(index)
        if name in plan.present:
            logger.warning("%s is listed twice: the first entry counts", name)
            continue
        plan.present.add(name)
        stamp = source.stamp(index)
        before = known.get(name)
        if before is not None and (stamp == before[0] or _same(source, index, before[1])):
            plan.kept[name] = (stamp, source.label(index))
        else:
            plan.missing.append(index)
    return plan


def _same(source: Source, index: int, content: str) -> bool:
    try:
        return source.content_hash(index) == content
    except OSError:  # gone, or not readable: embedding says which
        return False


def _assemble(
    folder: Path, header: Header, source: Source, old: pa.Table, plan: _Plan, parts: Sequence[Part]
) -> Changes:
    """Join what is kept and what was embedded; the header is replaced when all is on disk."""
    pool, new, skipped = _embedded(folder, source, old, parts)
    rows: list[tuple[int, int, Stamp, str | None]] = []  # place in the pool, id, stamp, label
    changed = 0
    for place, (name, id) in enumerate(zip(*_lists(old, "path", "id"), strict=True)):
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
    vectors = _join_vectors(folder, header, following, order, len(old), parts)
    threshold = calibrate(vectors, table["label"].to_pylist())
    following = replace(following, threshold=threshold.value, threshold_meaning=threshold.meaning)
    write_images(folder / following.images_file, table)
    write_header(folder, following)
    remove_unused(folder, following, table)
    return result


def _lists(table: pa.Table, *names: str) -> list[list[Any]]:
    return [table[name].to_pylist() for name in names]


def _embedded(
    folder: Path, source: Source, old: pa.Table, parts: Sequence[Part]
) -> tuple[pa.Table, dict[str, tuple[int, Stamp, str | None]], list[tuple[str, str]]]:
    """All rows, old and new, with what is new by name, and what could not be read."""
    columns = ["path", "width", "height", "content_hash", "z"]
    schema = pa.schema(map(PART_SCHEMA.field, columns))  # rows without an image have no size
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
    """A name that other images, another order or another model do not have."""
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
) -> NDArray[np.float32]:
    """Write the vectors; ``order`` counts the ``kept`` rows of the old file, then the parts."""
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
    return open_vectors(folder, following)


def _vectors(folder: Path, part: Part, dim: int) -> NDArray[np.float32]:
    """The vectors of a part, (n, D), zeros where an image could not be read."""
    table = read_part(folder, part)
    assert table is not None  # read a moment ago, under the lock
    column = table["vector"].combine_chunks()
    there = np.asarray(column.is_valid())
    vectors = np.zeros((len(table), dim), np.float32)
    vectors[there] = column.flatten().to_numpy().reshape(-1, dim)
    return vectors
