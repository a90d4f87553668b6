"""Images to index: any data set of the package, or files without labels."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from sumpool.data.base import ImageSubset
from sumpool.data.catalog import open_collection
from sumpool.data.sets.files import ImageFiles
from sumpool.search.folder import Header
from sumpool.system.digests import file_sha256


class Stamp(NamedTuple):
    """Size and modification time of a file, to detect changes; 0 if there is no file.

    Images stored in one file share its stamp: if it changes, their contents are compared.
    """

    bytes: int = 0
    mtime_ns: int = 0


class Source:
    """Images with names that are stable across updates.

    Args:
        data: Folder, CSV file or single image.
        format: A name in :data:`sumpool.data.DATASETS`, or "auto".
        split: Split of the data.
        labels: Whether to read labels. If not, images at any depth are included. A folder with
            images both inside and beside subfolders has no labels either way.
        allow_outside: Whether a CSV file may name images outside its folder.

    Raises:
        DataError: If there are no images in this format.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        format: str = "auto",
        split: str = "all",
        *,
        labels: bool = True,
        allow_outside: bool = False,
    ) -> None:
        self.root = Path(data).absolute()
        root = None if format == "glyphs" else self.root
        self.dataset = open_collection(
            root, format, split, labels=labels, allow_outside=allow_outside
        )
        if self.root.is_file():
            self.root = self.root.parent
        whole = self.dataset.parent if isinstance(self.dataset, ImageSubset) else self.dataset
        self.files = isinstance(whole, ImageFiles)
        self.labeled = labels and self.dataset.labeled

    @classmethod
    def of(cls, header: Header) -> Source:
        """Open the images of an index."""
        return cls(
            header.data,
            header.format,
            header.split,
            labels=header.labels,
            allow_outside=header.allow_outside,
        )

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        """Path of an image below the root, else absolute; a made-up name if it is not a file."""
        name = self.dataset.item_name(index)
        if not self.files:
            return name
        path = os.path.relpath(name, self.root)
        return name if path.startswith("..") else path

    def label(self, index: int) -> str | None:
        """Class name of an image; None without labels."""
        if not self.labeled:
            return None
        return self.dataset.class_names[int(self.dataset.labels[index])]

    def stamp(self, index: int) -> Stamp:
        """Size and modification time of the file with an image; all 0 if there is none."""
        file = self.dataset.item_file(index)
        if file is None:
            return Stamp()
        try:
            status = os.stat(file)
        except OSError:  # deleted after it was listed: reported when it is read
            return Stamp()
        return Stamp(status.st_size, status.st_mtime_ns)

    def content_hash(self, index: int, image: Image.Image | None = None) -> str:
        """SHA-256 of an image's file or, if it has none of its own, of its pixels."""
        if self.files:
            return file_sha256(self.dataset.item_name(index))
        image = image or self.dataset.load(index)
        return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()
