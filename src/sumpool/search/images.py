"""The images of an index: their table, their vectors, and the files they are in."""

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
from sumpool.search.folder import (
    Header,
    open_vectors,
    read_header,
    read_table,
    thumbnail_path,
)
from sumpool.search.parts import SIDE, thumbnail
from sumpool.search.queries import QueryError
from sumpool.search.source import Source
from sumpool.system.files import StoreError


class Match(NamedTuple):
    """An image that was found.

    Attributes:
        id: Its id in the index.
        path: Its path below the root of the data, or its name.
        label: Its label; None without.
        similarity: The cosine of the angle to the query or, of a prototype, its attribute z.
    """

    id: int
    path: str
    label: str | None
    similarity: float


class IndexedImages:
    """Read access to the images of an index.

    Args:
        folder: The index.
        device: Where the model runs on queries.

    Attributes:
        folder: The index.
        header: What it is of.
        images: The table of images: id, path, label, width, height, bytes, mtime_ns, content_hash
            and z, the attributes.
        vectors: Their vectors, of length 1, in the same rows, (N, D).
    """

    def __init__(self, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> None:
        self.folder = Path(folder)
        self.device = torch.device(device)
        self._open()

    def _open(self) -> None:
        self.header: Header = read_header(self.folder)
        if self.header.generation is None:
            raise StoreError(
                f"the index {self.folder} is not finished: continue with sumpool index "
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
        for name in properties:  # cached before
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
        """The labels that occur, sorted; none without labels."""
        return tuple(sorted({it for it in self.images["label"].to_pylist() if it is not None}))

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {id: row for row, id in enumerate(self.images["id"].to_pylist())}

    def row(self, id: int) -> int:
        """The row of an image in :attr:`images` and :attr:`vectors`.

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
        """The image with this id."""
        if id not in self._named:
            raise self._unknown(id)
        return Match(id, *self._named[id], similarity)

    @cached_property
    def _named(self) -> dict[int, tuple[str, str | None]]:
        # Path and label of each image; a table takes as long for one of them as a search does.
        ids, *names = (self.images[name].to_pylist() for name in ("id", "path", "label"))
        return dict(zip(ids, zip(*names, strict=True), strict=True))

    def path(self, id: int) -> Path | None:
        """The file of an image; None if it is in none of its own."""
        if not self.header.files:
            return None
        root = Path(self.header.data)
        name: str = self.images["path"][self.row(id)].as_py()
        return (root.parent if root.is_file() else root) / name

    def load(self, id: int) -> Image.Image:
        """An indexed image, RGB and upright.

        Raises:
            BrokenImageError: If it cannot be read any more.
        """
        path = self.path(id)
        if path is not None:
            return read_image(path)
        source, places = self._source
        return source.dataset.load(places[self.images["path"][self.row(id)].as_py()])

    @cached_property
    def _source(self) -> tuple[Source, dict[str, int]]:
        it = self.header
        source = Source(it.data, it.format, it.split, labels=it.labels)
        return source, {source.name(index): index for index in range(len(source))}

    def thumbnail(self, id: int, side: int = SIDE) -> bytes:
        """A small version of an image as JPEG: the stored one, or one that is made now."""
        stored = thumbnail_path(self.folder, self.images["content_hash"][self.row(id)].as_py())
        if side == SIDE and stored.is_file():
            return stored.read_bytes()
        return thumbnail(self.load(id), side)
