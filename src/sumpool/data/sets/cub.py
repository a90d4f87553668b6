"""CUB-200-2011: photographs of birds."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sumpool.data.base import DataError
from sumpool.data.sets.archive import ArchiveLayout, read_rows
from sumpool.data.sets.published import Count, Listing, PublishedDataset
from sumpool.data.splits import halves


class CUB200(PublishedDataset):
    """CUB-200-2011 [cub]: 11,788 photographs of 200 species of birds.

    Read from ``CUB_200_2011/``: ``images.txt``, ``image_class_labels.txt``, ``classes.txt`` and
    ``images/``. Splits: "train" (the first 100 classes), "test" (the last 100) and "all".
    """

    layout = ArchiveLayout(
        "CUB-200-2011",
        (("images.txt",), ("image_class_labels.txt",), ("classes.txt",)),
        inside=("CUB_200_2011",),
    )
    published: ClassVar = {"train": Count(100, 5864), "test": Count(100, 5924)}

    @classmethod
    def read(cls, home: Path) -> Listing:
        """List all images by number."""
        names = _by_number(home / "classes.txt", str)
        paths = _by_number(home / "images.txt", str)
        classes = _by_number(home / "image_class_labels.txt", int)
        if alone := sorted(paths.keys() ^ classes.keys()):
            file = "image_class_labels.txt" if alone[0] in paths else "images.txt"
            raise DataError(f"{home / file} lacks image number {alone[0]}")
        if unknown := sorted(number for number in classes if classes[number] not in names):
            raise DataError(
                f"{home / 'image_class_labels.txt'}: image number {unknown[0]} is of class "
                f"{classes[unknown[0]]}, which {home / 'classes.txt'} lacks"
            )
        position = {number: it for it, number in enumerate(sorted(names))}
        labels = [position[int(classes[number])] for number in sorted(paths)]
        files, class_names = ([str(it[number]) for number in sorted(it)] for it in (paths, names))
        return Listing(home / "images", files, labels, class_names, halves(labels, len(names)))


def _by_number(path: Path, kind: type) -> dict[int, str | int]:
    rows = read_rows(path, (int, kind))
    found = {int(number): value for number, value in rows}
    if len(found) != len(rows):
        raise DataError(f"{path} has a number twice")
    return found
