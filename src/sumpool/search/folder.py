"""Files of an index: a header, replaced last, and the files it names."""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sumpool.models.storage import DESCRIPTION, TENSORS
from sumpool.system.digests import file_sha256
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, atomic_path, write_atomic
from sumpool.system.locks import claim, held_by

#: Format version written; folders with a higher one are rejected.
VERSION = 1
#: Key of the header's own SHA-256.
DIGEST = "sha256"
HEADER, MODEL, PARTS, THUMBNAILS, LOCK = "index.json", "model", "parts", "thumbnails", ".lock"

#: Fields missing from the headers of early versions.
_LATER = frozenset({"calibrated_on"})

#: Columns of the image table, whose rows are aligned with the vectors.
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("mtime_ns", pa.int64(), nullable=False),
        pa.field("content_hash", pa.string(), nullable=False),
        pa.field("z", pa.list_(pa.float32())),
    ]
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Header:
    """Source, settings and files of an index.

    Attributes:
        data: Path of the images.
        format: Format of the data, or "auto".
        split: Split of the data.
        labels: Whether labels are read.
        allow_outside: Whether a CSV file may name images outside its folder.
        thumbnails: Whether thumbnails are stored.
        store: Vector store.
        batch_size: Images per forward pass; vectors depend on it in the last digits.
        model: Source of the model.
        model_digest: SHA-256 of the model copy in the index.
        next_id: Id of the next new image.
        generation: Part of the file names of vectors and table; None until a build completes.
        vectors_digest: SHA-256 of the vector file.
        images_digest: SHA-256 of the image table.
        count: Number of images.
        dim: Length of the vectors.
        files: Whether each image is a file of its own.
        threshold: Similarity at which images count as similar.
        threshold_meaning: How the threshold was measured.
        calibrated_on: "validation" for a fixed threshold from the validation images of the model's
            run, or "index".
        skipped: Name and reason of each image that could not be read.
        version: Format version.
    """

    data: str
    format: str
    split: str
    labels: bool
    allow_outside: bool
    thumbnails: bool
    store: str
    batch_size: int
    model: str
    model_digest: str
    next_id: int = 0
    generation: str | None = None
    vectors_digest: str = ""
    images_digest: str = ""
    count: int = 0
    dim: int = 0
    files: bool = True
    threshold: float = 1.0
    threshold_meaning: str = ""
    calibrated_on: str = "index"
    skipped: tuple[tuple[str, str], ...] = ()
    version: int = VERSION

    @property
    def vectors_file(self) -> str:
        """Name of the vector file."""
        return f"vectors-{self.generation}.npy"

    @property
    def images_file(self) -> str:
        """File name of the image table."""
        return f"images-{self.generation}.parquet"


def read_header(folder: Path) -> Header:
    """Read the header of the index in ``folder``.

    Raises:
        StoreError: If it is missing, damaged or of a newer version.
    """
    path = folder / HEADER
    if not path.is_file():
        raise StoreError(
            f"{folder} is not an index, {HEADER} is missing: build one with sumpool index --data "
            f"PHOTOS --out {shlex.quote(str(folder))}"
        )
    try:
        values = load_json(path)
        version = values["version"]
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"version is {version!r}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    if version > VERSION:
        raise StoreError(
            f"{path} is of version {version}, this sumpool reads up to {VERSION}: install a newer "
            "one, or build the index again"
        )
    unknown = sorted(({*values} ^ {DIGEST, *(it.name for it in fields(Header))}) - _LATER)
    if unknown:
        raise StoreError(f"{path} is damaged: {', '.join(unknown)} unknown or missing")
    if values.pop(DIGEST) != _digest(values):
        raise StoreError(f"{path} is damaged, or was changed: build the index again")
    values["skipped"] = tuple((name, reason) for name, reason in values["skipped"])
    return Header(**values)


def write_header(folder: Path, header: Header) -> None:
    """Replace the header of the index in ``folder``."""
    values = asdict(header)
    values[DIGEST] = _digest(values)
    text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    write_atomic(folder / HEADER, text.encode())


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        StoreError: If it cannot be read.
    """
    try:
        return file_sha256(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _check(path: Path, digest: str) -> None:
    if file_digest(path) != digest:
        raise StoreError(f"{path} is damaged, or was changed: build the index again")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the write lock of an index inside the ``with`` block.

    Raises:
        StoreError: If another process holds it; the message says which.
    """
    with claim(folder / LOCK) as mine:
        if not mine:
            raise StoreError(f"the index {folder} is being written by {held_by(folder / LOCK)}")
        yield


def write_images(path: Path, table: pa.Table) -> None:
    """Write the table of an index or a part, with a checksum per Parquet page."""
    with atomic_path(path) as aside:
        pq.write_table(table.combine_chunks(), aside, write_page_checksum=True)


def read_images(path: Path) -> pa.Table:
    """Read a table written by :func:`write_images`.

    Raises:
        StoreError: If it is missing or damaged.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{path} cannot be read: {reason}") from error


def read_table(folder: Path, header: Header) -> pa.Table:
    """Read the image table that the header names.

    Raises:
        StoreError: If it is missing or damaged.
    """
    _check(folder / header.images_file, header.images_digest)
    return read_images(folder / header.images_file)


def open_vectors(folder: Path, header: Header) -> NDArray[np.float32]:
    """Verify the digest of the vectors (N, D) and memory-map them.

    Raises:
        StoreError: If the file is missing or damaged.
    """
    path = folder / header.vectors_file
    _check(path, header.vectors_digest)
    try:
        vectors: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if vectors.shape != (header.count, header.dim) or vectors.dtype != np.float32:
        raise StoreError(f"{path} is damaged: it holds {vectors.shape}, {vectors.dtype}")
    return vectors


def model_digest(folder: Path) -> str:
    """Return the SHA-256 of the model in the index ``folder``."""
    digest = hashlib.sha256()
    for name in (DESCRIPTION, TENSORS):
        digest.update((folder / MODEL / name).read_bytes())
    return digest.hexdigest()


def thumbnail_path(folder: Path, content_hash: str) -> Path:
    """Path of the thumbnail of an image with this content."""
    return folder / THUMBNAILS / content_hash[:2] / f"{content_hash}.jpg"


def remove_unused(folder: Path, header: Header, table: pa.Table) -> None:
    """Remove all parts, and the vectors, tables and thumbnails that the header does not name.

    Partial files of killed processes go too: the caller holds the lock, so nobody else writes.
    """
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    for path in folder.rglob(".*.part"):
        path.unlink(missing_ok=True)
    kept = {header.vectors_file, header.images_file}
    for pattern in ("vectors-*.npy", "images-*.parquet"):
        for path in folder.glob(pattern):
            if path.name not in kept:
                path.unlink(missing_ok=True)
    wanted = set(table["content_hash"].to_pylist()) if header.thumbnails else set[Any]()
    for path in (folder / THUMBNAILS).glob("*/*.jpg"):
        if path.stem not in wanted:
            path.unlink(missing_ok=True)
