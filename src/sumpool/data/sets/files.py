"""Data sets of image files, and fast listing of many files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Unpack

from PIL import Image
from torch import Tensor

from sumpool.data.base import DataError, ImageDataset, Transforms
from sumpool.data.sets.decoding import image_extensions, read_image
from sumpool.system.wording import counted

logger = logging.getLogger(__name__)


class ImageFiles(ImageDataset):
    """Base class of data sets in which each image is a file.

    Args:
        folder: The folder that relative paths refer to.
        paths: Path of each image, relative to ``folder`` or absolute.
        labels: The class of each image, (N,) integers that index ``class_names``.
        class_names: One name per class.
        transforms: See :class:`~sumpool.data.base.Transforms`.
    """

    def __init__(
        self,
        folder: Path,
        paths: Sequence[str],
        labels: Tensor | Sequence[int],
        class_names: Sequence[str],
        **transforms: Unpack[Transforms],
    ) -> None:
        super().__init__(labels, class_names, **transforms)
        if len(paths) != len(self):
            raise ValueError(f"paths must be as many as the {len(self)} labels, got {len(paths)}")
        self.folder = folder
        self.paths = tuple(paths)
        _check_names([os.fspath(folder), *self.paths, *class_names])

    def load(self, index: int) -> Image.Image:
        """Return the image at ``index`` as upright RGB."""
        return read_image(self.item_name(index))

    def item_name(self, index: int) -> str:
        """Return the path of the image at ``index``."""
        return os.path.join(self.folder, self.paths[index])

    def item_file(self, index: int) -> str:
        """Return the path of the image at ``index``."""
        return self.item_name(index)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            readable = os.fsencode(name).decode(errors="backslashreplace")
            raise DataError(f"the name {readable} is not in UTF-8: rename the file") from None


def missing_files(folder: Path, paths: Sequence[str]) -> list[int]:
    """Return the indices of the ``paths`` (absolute, or relative to ``folder``) that are not files.

    Lists each folder once, which is fast even where looking up a single file is slow.
    """
    listings: dict[str, frozenset[str]] = {}
    missing = []
    for index, path in enumerate(paths):
        head, tail = os.path.split(path)
        if head not in listings:
            listings[head] = _file_names(os.path.join(folder, head))
        # A file system may accept names that differ from those it lists, e.g. in case.
        if tail not in listings[head] and not os.path.isfile(os.path.join(folder, path)):
            missing.append(index)
    return missing


def _file_names(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def image_paths(folder: Path) -> tuple[list[str], list[str]]:
    """List the files at any depth below ``folder``, as sorted paths relative to it.

    Returns the image files (by extension) and the other files, as two lists. Hidden files and
    folders are skipped.
    """
    found = sorted(_walk(folder, "", set()), key=lambda path: path.split(os.sep))
    images = [path for path in found if is_image_name(os.path.basename(path))]
    return images, [path for path in found if not is_image_name(os.path.basename(path))]


def holds_images(folder: Path) -> bool:
    """Whether there is an image file at any depth below ``folder``."""
    return any(is_image_name(os.path.basename(path)) for path in _walk(folder, "", set()))


def image_names(folder: Path) -> list[str]:
    """Return the sorted names of the image files directly in ``folder``."""
    with scan(folder) as entries:
        return sorted(it.name for it in entries if is_image_name(it.name) and it.is_file())


def note_skipped(folder: Path, skipped: Sequence[str], noun: str, which: str) -> None:
    """Log how many files or folders are skipped, and one of them."""
    if skipped:
        what = f"{counted(len(skipped), noun)} {which}"
        such = ": " if len(skipped) == 1 else ", such as "
        logger.warning("%s: skipped %s%s%s", folder, what, such, min(skipped))


def _walk(folder: Path, inner: str, above: set[tuple[int, int]]) -> Iterator[str]:
    place = os.path.join(folder, inner)
    status = os.stat(place)
    key = (status.st_dev, status.st_ino)
    if key in above:
        raise DataError(f"{place} is a link to a folder that it lies in")
    with scan(place) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = os.path.join(inner, entry.name)
            if entry.is_dir():
                yield from _walk(folder, path, above | {key})
            else:
                yield path


def is_image_name(name: str) -> bool:
    """Whether a file name is not hidden and has an image extension."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in image_extensions()


def folder_names(folder: Path) -> list[str]:
    """Return the sorted names of the folders in ``folder``, without hidden ones."""
    with scan(folder) as entries:
        return sorted(it.name for it in entries if it.is_dir() and not it.name.startswith("."))


def scan(folder: str | Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """Call ``os.scandir``, raising :class:`DataError` instead of :class:`OSError`."""
    try:
        return os.scandir(folder)
    except OSError as error:
        raise DataError(f"cannot list the folder {folder}: {error.strerror}") from error
