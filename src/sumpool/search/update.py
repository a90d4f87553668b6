"""Build an index and update it, processing only new, changed and deleted images."""

from __future__ import annotations

import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tqdm import tqdm

from sumpool.data import BrokenImageError
from sumpool.models import Embedder, load
from sumpool.models.opening import load_embedder, save_embedder
from sumpool.search.assemble import Changes, Plan, assemble
from sumpool.search.folder import (
    HEADER,
    MODEL,
    SCHEMA,
    Header,
    locked,
    model_digest,
    open_vectors,
    read_header,
    read_table,
    write_header,
)
from sumpool.search.frozen import frozen_embedder
from sumpool.search.parts import Part, embed_parts, plan_parts
from sumpool.search.source import Source, Stamp
from sumpool.search.stores.base import VectorIndex
from sumpool.search.stores.catalog import check_store, open_store
from sumpool.search.threshold import validation_threshold
from sumpool.system.files import StoreError
from sumpool.transport.validation import check_at_least_one

logger = logging.getLogger(__name__)

#: Computes missing parts: :func:`~sumpool.search.parts.embed_parts`, or a cluster.
Compute = Callable[[Embedder, Source, Sequence[Part], Path, Header], None]


def begin(
    data: str | os.PathLike[str],
    out: Path,
    model: str | os.PathLike[str] | Embedder | None,
    **options: Any,
) -> Source:
    """Begin a build, or resume one with the same options: write the model and an empty header.

    Returns the images.

    Args:
        data: Folder, CSV file or single image.
        out: Folder of the index.
        model: A model, its folder, or None for the packaged network.
        options: Options stored in the header.

    Raises:
        StoreError: If ``out`` holds a finished index, a build with other options, or other files.
    """
    check_store(options["store"])
    check_at_least_one(batch_size=options["batch_size"])
    options["batch_size"] = int(options["batch_size"])  # JSON has no numbers of NumPy
    threshold = None
    if isinstance(model, Embedder):
        embedder, name = model, "a model in memory"
    elif model is None:
        embedder, name = frozen_embedder(), "pretrained"
    else:
        embedder, name = load(Path(model)), str(Path(model).absolute())
        threshold = validation_threshold(Path(model))
    source = Source(  # raises here rather than after the model is written
        data, **{key: options[key] for key in ("format", "split", "labels", "allow_outside")}
    )
    with locked(out):
        begun = (out / HEADER).exists()
        known = read_header(out) if begun else None
        if known is not None and known.generation is not None:
            raise StoreError(
                f"{out} is an index already: update it with sumpool index "
                f"{shlex.quote(str(out))} --update, or choose another folder"
            )
        others = [it.name for it in out.iterdir() if it.name[0] != "." and it.name != MODEL]
        if known is None and others:
            raise StoreError(f"{out} holds other files, such as {min(others)}: choose a new folder")
        # Compared before the model of an unfinished index is replaced.
        with tempfile.TemporaryDirectory() as aside:
            save_embedder(embedder, Path(aside, MODEL))
            digest = model_digest(Path(aside))
        header = Header(
            data=str(Path(data).absolute()),
            model=name,
            model_digest=digest,
            dim=embedder.config.embedding_size,
            files=source.files,
            **options,
        )
        if threshold is not None:
            value, meaning = threshold
            header = replace(
                header, threshold=value, threshold_meaning=meaning, calibrated_on="validation"
            )
        if known is not None and known != header:
            changed = [key for key in vars(header) if vars(header)[key] != vars(known)[key]]
            raise StoreError(
                f"{out} holds an unfinished index with other options ({', '.join(changed)}): "
                "continue with those, or choose a new folder"
            )
        save_embedder(embedder, out / MODEL)
        if known is None:
            write_header(out, header)
    return source


def update(
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    progress: bool = True,
    store: str | None = None,
    compute: Compute | None = None,
    source: Source | None = None,
) -> Changes:
    """Update the index in ``folder``, resuming interrupted work.

    Args:
        folder: Folder of the index.
        device: Device of the model.
        workers: Number of decoding threads; None uses one per core.
        progress: Whether to show progress bars.
        store: New vector store; None keeps the current one.
        compute: Computes the missing parts; None uses this process.
        source: The images, as :func:`begin` returns them; None opens them.

    Raises:
        StoreError: If the index is damaged, or another process is changing it.
        DataError: If no images are left.
    """
    read_header(folder)  # before creating a lock: the folder may not be an index
    with locked(folder):
        header = read_header(folder)
        if store is not None and store != header.store:
            check_store(store)
        if model_digest(folder) != header.model_digest:
            raise StoreError(
                f"the model in {folder / MODEL} is not that of the index: build the index again"
            )
        source = Source.of(header) if source is None else source
        old = SCHEMA.empty_table() if header.generation is None else read_table(folder, header)
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
        changes = assemble(folder, header, source, old, plan, parts)
        after = read_header(folder)
        images = read_table(folder, after)
        if store is not None:
            after = replace(after, store=store)
        open_vector_index(folder, after, images, build=True).close()
        if store is not None:  # readers keep the former store until then
            write_header(folder, after)
        return changes


def open_vector_index(
    folder: Path, header: Header, images: pa.Table, *, build: bool = False
) -> VectorIndex:
    """Open the vector store of an index.

    Args:
        folder: Folder of the index.
        header: Its header.
        images: Its image table.
        build: Whether a store that is slow to build may be built.
    """
    hashes = images["content_hash"].to_pylist()
    return open_store(
        header.store,
        folder,
        images["id"].to_numpy(),
        open_vectors(folder, header),
        images["label"].to_pylist(),
        np.array([int(it[:8], 16) for it in hashes], np.uint32),
        build=build,
    )


def _compare(source: Source, old: pa.Table, progress: bool) -> Plan:
    columns = ("path", "bytes", "mtime_ns", "content_hash")
    known = {
        path: (Stamp(size, time), content)
        for path, size, time, content in zip(
            *(old[name].to_pylist() for name in columns), strict=True
        )
    }
    plan = Plan({}, [], set())
    bar = tqdm(range(len(source)), "comparing", unit=" images", disable=not (progress and known))
    for index in bar:
        name = source.name(index)
        if name in plan.present:
            logger.warning("%s is listed twice: the first entry counts", name)
            continue
        plan.present.add(name)
        stamp = source.stamp(index)
        before = known.get(name)
        untouched = before is not None and stamp == before[0] != Stamp()  # empty: compare contents
        if before is not None and (untouched or _same(source, index, before[1])):
            plan.kept[name] = (stamp, source.label(index))
        else:
            plan.missing.append(index)
    return plan


def _same(source: Source, index: int, content: str) -> bool:
    try:
        return source.content_hash(index) == content
    except (OSError, BrokenImageError):  # missing or unreadable: reported when it is embedded
        return False
