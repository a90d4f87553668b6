"""Images without class labels: a single file or a folder of image files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Unpack

from sumpool.data.base import DataError, Transforms
from sumpool.data.sets.archive import existing
from sumpool.data.sets.files import (
    ImageFiles,
    folder_names,
    holds_images,
    image_names,
    image_paths,
    is_image_name,
    note_skipped,
)


class FlatImages(ImageFiles):
    """An image file, or the image files of a folder sorted by name, without labels.

    Args:
        root: The file or the folder.
        deep: Whether to include images in subfolders, at any depth.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If no image is found.
    """

    labeled = False

    def __init__(
        self, root: str | os.PathLike[str], *, deep: bool = False, **transforms: Unpack[Transforms]
    ) -> None:
        path = existing(root)
        folder = path.parent if path.is_file() else path
        names, others = ([path.name], []) if path.is_file() else image_paths(path)
        if not deep:
            names = [it for it in names if os.sep not in it]
        if not names:
            such = f": {min(others)} is in no known image format" if others else ""
            raise DataError(f"there is no image in {path}{such}")
        note_skipped(path, others, "file", "not of an image format")
        super().__init__(folder, names, [0] * len(names), ("",), **transforms)


def is_flat(root: str | os.PathLike[str]) -> bool:
    """Whether ``root`` is an image file or a folder that has images, but none in subfolders."""
    path = Path(root)
    if not path.is_dir():
        return path.is_file() and is_image_name(path.name)
    below = any(holds_images(path / name) for name in folder_names(path))
    return not below and bool(image_names(path))
