"""Image folders with one subfolder per class."""

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
    note_skipped,
)
from sumpool.data.splits import check_split

#: Folders with these names, in capitals too, are splits if they contain class folders.
SPLIT_FOLDERS = ("train", "val", "validation", "test")


class ImageFolder(ImageFiles):
    """A folder with one subfolder per class, which contains its images at any depth.

    Class names are the sorted folder names; the images of a class are sorted by path. Hidden files
    are skipped. Class folders without images, images outside class folders and files of other types
    are skipped with a warning. Folders named ``train``, ``val``, ``validation`` or ``test``, or in
    capitals such as ``Train``, are splits if they contain class folders; a class has the same label
    in all of them.

    Args:
        root: The folder of class folders or splits.
        split: "all", or the name of a split folder.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If there are no class folders or no images in them.
    """

    def __init__(
        self, root: str | os.PathLike[str], split: str = "all", **transforms: Unpack[Transforms]
    ) -> None:
        folder = existing(root)
        groups = split_folders(folder)
        check_split(split, tuple(groups))
        chosen = groups.get(split)
        classes = {name: folder_names(folder / name) for name in groups.values() or ("",)}
        names = sorted({name for group in classes.values() for name in group})
        if not names:
            raise DataError(f"{folder} has no class folders: wanted one folder for each class")
        label = {name: it for it, name in enumerate(names)}
        paths: list[str] = []
        labels: list[int] = []
        empty: list[str] = []
        outside: list[str] = []
        others: list[str] = []
        for group, members in classes.items():
            if chosen not in (None, group):
                continue
            outside += [os.path.join(group, name) for name in image_names(folder / group)]
            for name in members:
                inner = os.path.join(group, name)
                found, rest = image_paths(folder / inner)
                if not found:
                    empty.append(inner)
                paths += [os.path.join(inner, path) for path in found]
                others += [os.path.join(inner, path) for path in rest]
                labels += [label[name]] * len(found)
        if not paths:
            raise DataError(f"there is no image in the class folders of {folder}")
        note_skipped(folder, empty, "class folder", "without images")
        note_skipped(folder, outside, "image", "outside class folders")
        note_skipped(folder, others, "file", "not of an image format")
        super().__init__(folder, paths, labels, names, **transforms)


def split_folders(folder: Path) -> dict[str, str]:
    """Return the split folders in ``folder`` by split, in the order of ``SPLIT_FOLDERS``.

    Raises:
        DataError: If ``folder`` mixes split folders and class folders.
    """
    names = folder_names(folder)
    named = [it for it in names if it.lower() in SPLIT_FOLDERS and folder_names(folder / it)]
    # If there are "Train" and "train", the last of the sorted names, "train", is the split.
    spelled = {it.lower(): it for it in named}
    found = {it: spelled[it] for it in SPLIT_FOLDERS if it in spelled}
    own = list(found.values())
    others = [it for it in names if own and it not in own and holds_images(folder / it)]
    # A class that happens to be named "train", or "Train" with folders of its own.
    if len(own) == 1 and any(own[0] not in found or image_names(folder / it) for it in others):
        return {}
    if not others:
        return found
    raise DataError(
        f"{folder} has the splits {', '.join(own)} and beside them the folder {others[0]}: "
        f"wanted splits alone or class folders alone; a class may not be named {own[0]}"
    )
