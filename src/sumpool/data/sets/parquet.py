"""Images in Parquet files, a common export format of data lakes and published data sets."""

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
from sumpool.data.splits import check_split

#: Row groups kept in memory: images are mostly read in order.
_KEPT = 4
_reading = threading.Lock()


class ParquetImages(ImageDataset):
    """Encoded images (JPEG, PNG, …) in the column ``image`` of Parquet files.

    The column contains the bytes, or structures with a field ``bytes`` as in Hugging Face data
    sets. The column ``label``, text or integers, gives the classes; all files have it, or none.

    Args:
        root: A Parquet file, or a folder of Parquet files, which are read sorted by name.
        split: "all".
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If a file cannot be read, columns are invalid, or there is no image.
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
        #: First row of each row group, followed by the total number of rows.
        self._starts = np.cumsum([0, *(rows for _, _, rows in groups)])
        self._first = np.cumsum([0, *(it.metadata.num_rows for it in opened)]).tolist()
        has_label = ["label" in it.schema_arrow.names for it in opened]
        self.labeled = any(has_label)
        if not self._starts[-1]:
            raise DataError(f"there is no image in {path}")
        if self.labeled and not all(has_label):
            lacking = self.files[has_label.index(False)]
            raise DataError(f"{lacking} lacks the column label, which others have")
        if not self.labeled:
            super().__init__([0] * int(self._starts[-1]), ("",), **transforms)
            return
        values = [value for it in opened for value in it.read(["label"])["label"].to_pylist()]
        kinds = {type(value) for value in values}
        if kinds not in ({str}, {int}):
            raise DataError(f"the labels of {path} must be text or whole numbers, without gaps")
        names = sorted(set(values))
        place = {name: it for it, name in enumerate(names)}
        super().__init__([place[it] for it in values], [*map(str, names)], **transforms)

    def load(self, index: int) -> Image.Image:
        """Return the image at ``index`` as upright RGB."""
        file, group, row = self._place(index)
        name = self.item_name(index)
        path, written = self.files[file], self._written[file]
        content = _row_group(str(path), written, group, self._column)[row].as_py()
        if content is None:
            raise BrokenImageError(f"cannot read the image {name}: it is missing", "it is missing")
        try:
            image = Image.open(io.BytesIO(content), formats=image_formats())
        except Exception as error:  # damaged bytes can make decoders raise anything
            reason = f"it is in none of the formats {', '.join(image_formats())}"
            raise BrokenImageError(f"cannot read the image {name}: {reason}", reason) from error
        image.filename = name
        return read_image(image)

    def item_name(self, index: int) -> str:
        """Return the file and row of the image at ``index``, such as "train.parquet#17"."""
        file = self._place(index)[0]
        return f"{self.files[file]}#{index - self._first[file]}"

    def item_file(self, index: int) -> str:
        """Return the Parquet file that contains the image at ``index``."""
        return str(self.files[self._place(index)[0]])

    def _place(self, index: int) -> tuple[int, int, int]:
        """Return the file, the row group and the row in that group."""
        at = int(np.searchsorted(self._starts, index, side="right")) - 1
        return (*self._groups[at], index - int(self._starts[at]))


def parquet_files(folder: Path) -> tuple[Path, ...]:
    """Return the Parquet files in ``folder``, sorted by name."""
    return tuple(sorted(folder.glob("*.parquet")))


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}") from error


def _image_column(files: list[Any]) -> str:
    """Return the column of image bytes, which must be the same in all files."""
    found = {_bytes_of(file.schema_arrow) for file in files}
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
    """Read a row group, cached by the file's modification time ``written``."""
    with _reading:  # concurrent threads read a group only once
        return _read_group(path, written, group, column)
