"""Images inside Parquet files, as exports of data lakes and published data sets have them."""

from __future__ import annotations

import functools
import io
import os
import threading
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from sumpool.data.base import BrokenImageError, DataError, ImageDataset, Transforms
from sumpool.data.sets.archive import existing
from sumpool.data.sets.decoding import image_formats, read_image
from sumpool.data.sets.published import check_split

#: Row groups that are kept in memory: images are mostly read in their order.
_KEPT = 4
_reading = threading.Lock()


class ParquetImages(ImageDataset):
    """Encoded images (JPEG, PNG, …) in the column ``image`` of Parquet files.

    The column holds the bytes, or a structure with the field ``bytes``, as Hugging Face's data sets
    do. A column ``label``, of text or numbers, gives the classes; without one, there are none.

    Args:
        root: A file, or a folder with such files, which are taken in the order of their names.
        split: "all".
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If a file cannot be read, or lacks the column.
    """

    def __init__(
        self, root: str | os.PathLike[str], split: str = "all", **transforms: Unpack[Transforms]
    ) -> None:
        check_split(split, ())
        path = existing(root)
        self.files = parquet_files(path) if path.is_dir() else (path,)
        self._written = [file.stat().st_mtime_ns for file in self.files]
        opened = [_open(file) for file in self.files]
        self._column = _image_column(opened)
        groups = [
            (file, group, opened[file].metadata.row_group(group).num_rows)
            for file in range(len(opened))
            for group in range(opened[file].metadata.num_row_groups)
        ]
        self._groups = [(file, group) for file, group, _ in groups]
        #: The first row of each row group, and one after the last.
        self._starts = np.cumsum([0, *(rows for _, _, rows in groups)])
        self._first = np.cumsum([0, *(it.metadata.num_rows for it in opened)]).tolist()
        labels = [it.read(["label"])["label"] for it in opened if "label" in it.schema_arrow.names]
        self.labeled = len(labels) == len(opened)
        if not self._starts[-1]:
            raise DataError(f"there is no image in {path}")
        if not self.labeled:
            super().__init__([0] * int(self._starts[-1]), ("",), **transforms)
            return
        values = [value for column in labels for value in column.to_pylist()]
        kinds = {type(value) for value in values}
        if kinds not in ({str}, {int}):
            raise DataError(f"the labels of {path} must be text or whole numbers, without gaps")
        names = sorted(set(values))
        place = {name: it for it, name in enumerate(names)}
        super().__init__([place[it] for it in values], [*map(str, names)], **transforms)

    def load(self, index: int) -> Image.Image:
        """The image at ``index``, RGB and upright."""
        file, group, row = self._place(index)
        name = self.item_name(index)
        path, written = self.files[file], self._written[file]
        content = _row_group(str(path), written, group, self._column)[row].as_py()
        if content is None:
            raise BrokenImageError(f"cannot read the image {name}: it is missing", "it is missing")
        try:
            image = Image.open(io.BytesIO(content), formats=image_formats())
        except Exception as error:  # decoders raise all sorts on damaged bytes
            reason = f"it is in none of the formats {', '.join(image_formats())}"
            raise BrokenImageError(f"cannot read the image {name}: {reason}", reason) from error
        image.filename = name
        return read_image(image)

    def item_name(self, index: int) -> str:
        """The file of the image at ``index``, and its row there."""
        file = self._place(index)[0]
        return f"{self.files[file]}#{index - self._first[file]}"

    def item_file(self, index: int) -> str:
        """The Parquet file that holds the image at ``index``."""
        return str(self.files[self._place(index)[0]])

    def _place(self, index: int) -> tuple[int, int, int]:
        """File, row group, and row in that."""
        at = int(np.searchsorted(self._starts, index, side="right")) - 1
        return (*self._groups[at], index - int(self._starts[at]))


def parquet_files(folder: Path) -> tuple[Path, ...]:
    """The Parquet files in ``folder``, sorted by name."""
    return tuple(sorted(folder.glob("*.parquet")))


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}") from error


def _image_column(files: list[Any]) -> str:
    """The column of the bytes, the same in all files."""
    found = {name for file in files for name in [_bytes_of(file.schema_arrow)]}
    if len(found) > 1:
        raise DataError("Parquet files must be alike: in some, image has the field bytes")
    return found.pop()


def _bytes_of(schema: pa.Schema) -> str:
    kinds = {it.name: it.type for it in schema}
    if pa.types.is_struct(kinds.get("image", pa.null())):
        kinds |= {f"image.{it.name}": it.type for it in kinds["image"]}
    for name in ("image", "image.bytes"):
        if kinds.get(name) in (pa.binary(), pa.large_binary()):
            return name
    raise DataError(
        "Parquet files need a column image with the bytes of an image in each row, got "
        f"{', '.join(f'{it.name} ({it.type})' for it in schema)}"
    )


@functools.lru_cache(_KEPT)
def _read_group(path: str, written: int, group: int, column: str) -> Any:
    try:
        table = pq.ParquetFile(path).read_row_group(group, columns=[column])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}") from error
    images = table["image"].combine_chunks()
    return images.field("bytes") if pa.types.is_struct(images.type) else images


def _row_group(path: str, written: int, group: int, column: str) -> Any:
    """The rows of a file as it was ``written``: one that is replaced has others."""
    with _reading:  # threads that want the same rows wait for one another
        return _read_group(path, written, group, column)
