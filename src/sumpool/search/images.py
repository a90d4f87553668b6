"""The images of an index: their table, vectors and files."""

from __future__ import annotations

import os
import shlex
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image

from sumpool.data.sets.decoding import read_image
from sumpool.evaluation.gallery_images import thumbnail
from sumpool.search.folder import Header, open_vectors, read_header, read_table, thumbnail_path
from sumpool.search.parts import SIDE
from sumpool.search.queries import QueryError
from sumpool.search.source import Source
from sumpool.system.files import StoreError


class Match(NamedTuple):
    """A search result.

    Attributes:
        id: Id of the image in the index.
        path: Path of the image below the root of the data, or its name.
        label: Label of the image; None if it has none.
        similarity: Cosine similarity to the query or, for a prototype, the attribute z.
    """

    id: int
    path: str
    label: str | None
    similarity: float


class IndexedImages:
    """Read access to the images of an index.

    Args:
        folder: Folder of the index.
        device: Device on which queries are embedded.

    Attributes:
        folder: Folder of the index.
        header: Its header.
        images: The image table: id, path, label, width, height, bytes, mtime_ns, content_hash and
            z, the attributes.
        vectors: Unit vectors in the same rows, (N, D).
    """

    def __init__(self, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> None:
        self.folder = Path(folder)
        self.device = torch.device(device)
        self._open()

    def _open(self) -> None:
        self.header: Header = read_header(self.folder)
        if self.header.generation is None:
            raise StoreError(
                f"the index {self.folder} is not finished: resume with sumpool index "
                f"{shlex.quote(str(self.folder))} --update"
            )
        try:
            self._load()
        except StoreError:
            header = read_header(self.folder)
            if header.generation == self.header.generation:
                raise
            self.header = header  # another process has just replaced the files
            self._load()
        properties = [it for it in dir(type(self)) if it in self.__dict__]
        for name in properties:  # cached from the previous header
            del self.__dict__[name]

    def _load(self) -> None:
        self.images: pa.Table = read_table(self.folder, self.header)
        self.vectors: NDArray[np.float32] = open_vectors(self.folder, self.header)

    def __len__(self) -> int:
        return self.header.count

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, {len(self):,} images)"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All labels, sorted; empty if the images have none."""
        return tuple(sorted({it for it in self.images["label"].to_pylist() if it is not None}))

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {id: row for row, id in enumerate(self.images["id"].to_pylist())}

    def row(self, id: int) -> int:
        """Return the row of an image in :attr:`images` and :attr:`vectors`.

        Raises:
            QueryError: If no image has this id.
        """
        if id not in self._rows:
            raise self._unknown(id)
        return self._rows[id]

    def _unknown(self, id: int) -> QueryError:
        return QueryError(
            f"id must be that of an indexed image, between {min(self._rows)} and "
            f"{max(self._rows)}, got {id}"
        )

    def match(self, id: int, similarity: float = 1.0) -> Match:
        """Return the image with this id as a result."""
        if id not in self._named:
            raise self._unknown(id)
        return Match(id, *self._named[id], similarity)

    @cached_property
    def _named(self) -> dict[int, tuple[str, str | None]]:
        # Path and label of each image: looking one up in the table takes as long as a search.
        ids, *names = (self.images[name].to_pylist() for name in ("id", "path", "label"))
        return dict(zip(ids, zip(*names, strict=True), strict=True))

    def path(self, id: int) -> Path | None:
        """Return the file of an image; None if images are not files of their own."""
        if not self.header.files:
            return None
        root = Path(self.header.data)
        name: str = self.images["path"][self.row(id)].as_py()
        return (root.parent if root.is_file() else root) / name

    def load(self, id: int) -> Image.Image:
        """Load an indexed image, RGB and upright.

        Raises:
            BrokenImageError: If it can no longer be read.
        """
        path = self.path(id)
        if path is not None:
            return read_image(path)
        source, places = self._source
        return source.dataset.load(places[self.images["path"][self.row(id)].as_py()])

    @cached_property
    def _source(self) -> tuple[Source, dict[str, int]]:
        source = Source.of(self.header)
        return source, {source.name(index): index for index in range(len(source))}

    def thumbnail(self, id: int, side: int = SIDE) -> bytes:
        """Return a thumbnail as JPEG, stored or made on the fly."""
        stored = thumbnail_path(self.folder, self.images["content_hash"][self.row(id)].as_py())
        if side == SIDE and stored.is_file():
            return stored.read_bytes()
        return thumbnail(self.load(id), side)
