"""Data sets by name, and detection of the format of a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sumpool.data.base import DataError, ImageDataset
from sumpool.data.sets.archive import existing
from sumpool.data.sets.cars import Cars196
from sumpool.data.sets.cifar import CIFAR10, CIFAR100
from sumpool.data.sets.csv_dataset import ImageTable, find_splits, read_header
from sumpool.data.sets.cub import CUB200
from sumpool.data.sets.files import folder_names, image_names, image_paths
from sumpool.data.sets.flat import FlatImages, is_flat
from sumpool.data.sets.folder import ImageFolder, split_folders
from sumpool.data.sets.inshop import InShop
from sumpool.data.sets.mnist import MNIST, FashionMNIST
from sumpool.data.sets.parquet import ParquetImages, parquet_files
from sumpool.data.sets.sop import StanfordOnlineProducts
from sumpool.data.synthetic.clutter import SPLITS as CLUTTER_SPLITS
from sumpool.data.synthetic.clutter import CubClutter
from sumpool.data.synthetic.collage import SPLITS as COLLAGE_SPLITS
from sumpool.data.synthetic.collage import CifarCollages, CifarForegrounds
from sumpool.data.synthetic.glyphs import SPLITS as GLYPH_SPLITS
from sumpool.data.synthetic.glyphs import GlyphCollages
from sumpool.system.wording import counted

logger = logging.getLogger(__name__)

_ARCHIVES: dict[str, Any] = {
    "cub": CUB200,
    "cars196": Cars196,
    "sop": StanfordOnlineProducts,
    "inshop": InShop,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
}
#: The data sets by name. Those made from the files of an archive are never detected.
DATASETS: dict[str, type[ImageDataset]] = {
    **_ARCHIVES,
    "cifar-collage": CifarCollages,
    "cifar-foreground": CifarForegrounds,
    "cub-clutter": CubClutter,
    "folder": ImageFolder,
    "csv": ImageTable,
    "parquet": ParquetImages,
    "glyphs": GlyphCollages,
}
#: Splits of the data sets that have the same in every folder.
_SPLITS: dict[str, Iterable[str]] = {
    **{name: cls.published for name, cls in _ARCHIVES.items()},
    "cifar-collage": COLLAGE_SPLITS,
    "cifar-foreground": COLLAGE_SPLITS,
    "cub-clutter": CLUTTER_SPLITS,
    "parquet": (),
    "glyphs": GLYPH_SPLITS,
}


def open_dataset(
    root: str | os.PathLike[str] | None, format: str = "auto", split: str = "all", **options: Any
) -> ImageDataset:
    """Open a data set.

    Args:
        root: Folder of the data set; "csv" and "parquet" also accept a file. None for "glyphs",
            which are generated.
        format: A name in ``DATASETS``, or "auto" to detect it from the files.
        split: One of :func:`dataset_splits`, which always include "all".
        options: Further arguments of the data set's class, such as ``transform``.

    Raises:
        DataError: If files are missing or invalid; names them.
    """
    format = _format(root, format)
    cls: Any = DATASETS[format]
    return cls(root, split=split, **options)  # type: ignore[no-any-return]


def open_collection(
    root: str | os.PathLike[str] | None,
    format: str = "auto",
    split: str = "all",
    *,
    labels: bool = True,
    allow_outside: bool = False,
) -> ImageDataset:
    """Open images that need no labels: as :func:`open_dataset`, or an image or folder of images.

    Args:
        root: As in :func:`open_dataset`, or an image file.
        format: As in :func:`open_dataset`.
        split: As in :func:`open_dataset`.
        labels: Whether to read the labels of class folders. A folder with images both inside and
            beside subfolders has none either way: all are included, at any depth.
        allow_outside: Whether a CSV file may name images outside its folder.

    Raises:
        DataError: If files are missing or invalid, or there is no such split.
    """
    if format == "auto" and root is not None:
        if split == "all" and is_flat(root):
            return FlatImages(root)
        format = detect_format(root)
        if format == "folder" and split == "all":
            beside = image_names(Path(root))
            if beside and labels:
                many = counted(len(beside), "image")
                logger.warning("%s has %s beside its folders: no labels are read", root, many)
            if beside or not labels:
                return FlatImages(root, deep=True)
    splits = dataset_splits(root, format)
    if split not in splits:
        raise DataError(
            f"{format if root is None else root} has no split {split}: it has "
            f"{', '.join(splits)} (format {format})"
        )
    more = {"allow_outside": allow_outside} if format == "csv" else {}
    return open_dataset(root, format, split, **more)


def dataset_splits(root: str | os.PathLike[str] | None, format: str = "auto") -> tuple[str, ...]:
    """Return the splits that :func:`open_dataset` accepts for ``root``, ending with "all"."""
    format = _format(root, format)
    if format in _SPLITS:
        return (*_SPLITS[format], "all")
    assert root is not None
    found = split_folders(existing(root)) if format == "folder" else find_splits(root)
    return (*found, "all")


def detect_format(root: str | os.PathLike[str]) -> str:
    """Detect the format of the files at ``root``, as a name in ``DATASETS``.

    The archives of known data sets are tried first, then a CSV file with the columns path and
    label, then Parquet files, then a folder of class folders.

    Raises:
        DataError: If no format matches, or if several archives do.
    """
    path = existing(root)
    if path.is_file():
        if path.suffix.lower() == ".csv":
            return "csv"
        if path.suffix.lower() == ".parquet":
            return "parquet"
        raise DataError(f"{path} is a file but no CSV: wanted a folder, a CSV or a Parquet file")
    found = [name for name, cls in _ARCHIVES.items() if _holds(path, cls)]
    if len(found) > 1:
        raise DataError(f"{path} holds {' and '.join(found)}: give format, or the folder of one")
    if found:
        return found[0]
    tables = list(path.glob("*.csv"))
    if len(tables) == 1 and {"path", "label"} <= {*read_header(tables[0])}:
        return "csv"
    if parquet_files(path):
        return "parquet"
    if MNIST.layout.find(path) is not None:
        raise DataError(
            f"{path} has files named as MNIST's, but neither its labels nor those of "
            "Fashion-MNIST: give format"
        )
    if folder_names(path):
        return "folder"
    others = image_paths(path)[1]
    such = f" but files such as {min(others)}, which is in no known image format" if others else ""
    raise DataError(
        f"{path} holds no data set{such}: wanted class folders, a CSV file with the columns path "
        f"and label, Parquet files, or the unpacked archive of {', '.join(_ARCHIVES)}"
    )


def _holds(root: Path, cls: Any) -> bool:
    home = cls.layout.find(root)
    return home is not None and (not issubclass(cls, MNIST) or cls.recognizes(home))


def _format(root: str | os.PathLike[str] | None, format: str) -> str:
    if format not in DATASETS and format != "auto":
        raise ValueError(f"format must be 'auto' or one of {[*DATASETS]}, got {format!r}")
    if root is None and format != "glyphs":
        raise ValueError(f"root must be a path unless format is 'glyphs', got None with {format!r}")
    return format if format != "auto" or root is None else detect_format(root)
