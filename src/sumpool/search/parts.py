"""Embed images in parts of a few hundred, so that interrupted work can resume.

A part is a Parquet file with one row per image. Its name is a digest of its images, the model and
the batch size, so an existing part never has to be recomputed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from sumpool.data import BrokenImageError
from sumpool.data.feeds.threads import map_ahead
from sumpool.evaluation.embed import NotFiniteError
from sumpool.evaluation.gallery_images import thumbnail
from sumpool.models import Embedder
from sumpool.search.folder import PARTS, SCHEMA, Header, read_images, thumbnail_path, write_images
from sumpool.search.source import Source, Stamp
from sumpool.system.cores import usable_cores
from sumpool.system.files import StoreError, write_atomic
from sumpool.system.modes import evaluating

#: Images per part.
SIZE = 512
#: Longest side of a thumbnail in pixels.
SIDE = 256

#: Columns of a part: those of the image table, the reason for a missing vector, and the vector.
PART_SCHEMA = pa.schema(
    [
        *(field.with_nullable(True) for field in SCHEMA if field.name not in ("id", "label")),
        pa.field("reason", pa.string()),
        pa.field("vector", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True)
class Part:
    """Images that are embedded together.

    Attributes:
        indices: Their indices in the data set.
        names: Their names.
        stamps: Size and modification time of each file before it was read.
        file: File name of the part.
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    stamps: tuple[Stamp, ...]
    file: str


def plan_parts(source: Source, indices: Sequence[int], header: Header) -> list[Part]:
    """Split ``indices`` of the source into parts."""
    parts = []
    for start in range(0, len(indices), SIZE):
        chosen = tuple(indices[start : start + SIZE])
        names = tuple(source.name(it) for it in chosen)
        stamps = tuple(source.stamp(it) for it in chosen)
        identity = (header.model_digest, header.batch_size, header.thumbnails, names, stamps)
        digest = hashlib.sha256(repr(identity).encode()).hexdigest()
        parts.append(Part(chosen, names, stamps, f"{digest[:24]}.parquet"))
    return parts


def read_part(folder: Path, part: Part) -> pa.Table | None:
    """Read the rows of ``part``; None if it is missing or damaged."""
    try:
        table = read_images(folder / PARTS / part.file)
    except StoreError:
        return None
    sound = table.schema.equals(PART_SCHEMA) and table["path"].to_pylist() == list(part.names)
    return table if sound else None


def embed_parts(
    model: Embedder,
    source: Source,
    parts: Sequence[Part],
    folder: Path,
    header: Header,
    *,
    workers: int | None = None,
    progress: bool = True,
) -> None:
    """Compute the parts missing from the index ``folder``, storing each once it is complete.

    Args:
        model: The model of the index, on the device to use.
        source: The images.
        parts: All required parts.
        folder: Folder of the index.
        header: Its header.
        workers: Number of decoding threads; None uses one per core.
        progress: Whether to show a progress bar.
    """
    missing = [part for part in parts if read_part(folder, part) is None]
    done = sum(len(part.indices) for part in parts if part not in missing)
    total = sum(len(part.indices) for part in parts)
    threads = workers or usable_cores()
    reader = _Reader(source, model, folder if header.thumbnails else None)
    items = [
        (index, stamp) for it in missing for index, stamp in zip(it.indices, it.stamps, strict=True)
    ]
    ahead = 2 * header.batch_size + threads
    with (
        evaluating(model),
        contextlib.closing(map_ahead(reader, items, threads, ahead)) as seen,
        tqdm(
            desc="embedding", total=total, initial=done, unit=" images", disable=not progress
        ) as bar,
    ):
        for part in missing:
            rows: list[dict[str, object]] = []
            images = itertools.islice(seen, len(part.indices))
            for batch in _batches(images, header.batch_size):
                _embed(model, batch, source)
                bar.update(len(batch))
                rows += [it.row for it in batch]
            table = pa.Table.from_pylist(rows, schema=PART_SCHEMA)
            write_images(folder / PARTS / part.file, table)


class _Seen:
    """An image in progress: its row, and its pixels until it is embedded."""

    def __init__(self, index: int, row: dict[str, object], pixels: Tensor | None) -> None:
        self.index, self.row, self.pixels = index, row, pixels


class _Reader:
    """Callable for threads that reads an image: preprocessed pixels, size and content hash."""

    def __init__(self, source: Source, model: Embedder, folder: Path | None) -> None:
        self.source, self.view, self.folder = source, model.preprocessing, folder

    def __call__(self, item: tuple[int, Stamp]) -> _Seen:
        index, stamp = item
        row: dict[str, object] = {"path": self.source.name(index), **stamp._asdict()}
        try:
            image = self.source.dataset.load(index)
            pixels = self.view.test_pixels(image)
            content = self.source.content_hash(index, image)
        except BrokenImageError as error:
            return _Seen(index, {**row, "reason": error.reason}, None)
        except (ValueError, OSError) as error:  # smaller than the crop, or deleted
            return _Seen(index, {**row, "reason": str(error)}, None)
        row |= {"width": image.width, "height": image.height, "content_hash": content}
        if self.folder is not None:
            path = thumbnail_path(self.folder, content)
            if not path.is_file():
                write_atomic(path, thumbnail(image, SIDE))
        return _Seen(index, row, pixels)


def _batches(seen: Iterator[_Seen], size: int) -> Iterator[list[_Seen]]:
    """Yield batches of ``size`` readable images each, with the unreadable ones in between."""
    batch: list[_Seen] = []
    readable = 0
    for it in seen:
        batch.append(it)
        readable += it.pixels is not None
        if readable == size:
            yield batch
            batch, readable = [], 0
    if batch:
        yield batch


@torch.no_grad()
def _embed(model: Embedder, batch: list[_Seen], source: Source) -> None:
    """Add vector and attributes to the rows of the readable images."""
    there = [it for it in batch if it.pixels is not None]
    if not there:
        return
    device = next(model.parameters()).device
    pixels = torch.stack([it.pixels for it in there if it.pixels is not None])
    vectors, attributes = unit_vectors(model, model.preprocessing.normalize(pixels.to(device)))
    sound = vectors.isfinite().all(1)
    for place, it in enumerate(there):
        if not bool(sound[place]):
            raise NotFiniteError(
                f"the embedding of {source.name(it.index)} is not finite: the weights of the model "
                "are damaged, or its training diverged"
            )
        it.row["vector"] = vectors[place].numpy()
        if attributes is not None:
            it.row["z"] = attributes[place].numpy()
        it.pixels = None


def unit_vectors(model: Embedder, images: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute unit embeddings (B, D) and attributes (B, m) or None, as float32 on the CPU."""
    if model.pooling.has_attributes:
        out = model(images, details=True)
        return F.normalize(out.embedding.float(), dim=-1).cpu(), out.attributes.float().cpu()
    return F.normalize(model(images).float(), dim=-1).cpu(), None
