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
        if path.is_file():
            names = [path.name]
        else:
            names = image_paths(path)[0] if deep else image_names(path)
        if not names:
            raise DataError(f"there is no image in {path}")
        super().__init__(folder, names, [0] * len(names), ("",), **transforms)


def is_flat(root: str | os.PathLike[str]) -> bool:
    """Whether ``root`` is an image file or a folder that has images, but none in subfolders."""
    path = Path(root)
    if not path.is_dir():
        return path.is_file() and is_image_name(path.name)
    below = any(holds_images(path / name) for name in folder_names(path))
    return not below and bool(image_names(path))
