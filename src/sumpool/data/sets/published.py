"""Base of published data sets: image lists in known layouts, checked against published counts."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Unpack

from sumpool.data.base import DataError, Transforms
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.files import ImageFiles, missing_files
from sumpool.system.wording import counted

#: Number of missing files named in an error message.
NAMED = 5


class Listing(NamedTuple):
    """All images of a data set, according to its own lists.

    Attributes:
        folder: The folder that ``paths`` are relative to.
        paths: Path of each image.
        labels: The class of each image, 0 … C−1.
        class_names: One name per class.
        parts: The split each image belongs to.
    """

    folder: Path
    paths: Sequence[str]
    labels: Sequence[int]
    class_names: Sequence[str]
    parts: Sequence[str]


class Count(NamedTuple):
    """Size of a split: number of classes and images."""

    classes: int
    images: int

    def __str__(self) -> str:
        return f"{counted(self.images, 'image')} of {counted(self.classes, 'class', 'classes')}"


class PublishedDataset(ImageFiles):
    """Base class of data sets with a published layout and published counts.

    Subclasses define the location of the files (:attr:`layout`), the expected size of each split
    (:attr:`published`) and the reader of the image lists (:meth:`read`).

    Args:
        root: The folder of the archive, or the folder that contains it.
        split: One of :attr:`published`, or "all".
        check_counts: Whether to require the published numbers of classes and images. Missing
            images are always an error.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If a list is missing or damaged, an image is missing, or a count differs.
    """

    layout: ClassVar[ArchiveLayout]
    #: Number of classes and images of each split.
    published: ClassVar[Mapping[str, Count]]

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        *,
        check_counts: bool = True,
        **transforms: Unpack[Transforms],
    ) -> None:
        check_split(split, self.published)
        home = self.layout.locate(root)
        listing = self.read(home)
        self._check(home, listing, check_counts)
        chosen = [it for it, part in enumerate(listing.parts) if split in ("all", part)]
        super().__init__(
            listing.folder,
            [listing.paths[it] for it in chosen],
            [listing.labels[it] for it in chosen],
            listing.class_names,
            **transforms,
        )

    @classmethod
    @abstractmethod
    def read(cls, home: Path) -> Listing:
        """Read the image lists in ``home``, the folder of the archive."""

    @classmethod
    def _check(cls, home: Path, listing: Listing, check_counts: bool) -> None:
        for path in listing.paths:
            if os.path.isabs(path) or ".." in path.split("/"):
                raise DataError(f"{cls.layout.title} in {home} lists {path}, which leads out of it")
        missing = missing_files(listing.folder, listing.paths)
        complaints = []
        if check_counts:
            here = sorted(set(range(len(listing.paths))) - set(missing))
            for split, wanted in cls.published.items():
                labels = [listing.labels[it] for it in here if listing.parts[it] == split]
                found = Count(len(set(labels)), len(labels))
                if found != wanted:
                    complaints.append(f"the split {split!r} must have {wanted}, found {found}")
        if missing:
            first = ", ".join(str(listing.folder / listing.paths[it]) for it in missing[:NAMED])
            more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
            share = f"{len(missing):,} of {len(listing.paths):,}"
            complaints.append(f"{share} listed images are missing: {first}{more}")
        if complaints:
            raise DataError(f"{cls.layout.title} in {home}: {'; '.join(complaints)}")


def check_split(split: str, splits: Iterable[str]) -> None:
    """Raise unless ``split`` is one of ``splits`` or "all"."""
    accepted = (*splits, "all")
    if split not in accepted:
        raise ValueError(f"split must be one of {accepted}, got {split!r}")


def halves(labels: Sequence[int], classes: int) -> list[str]:
    """Return the usual zero-shot split: first half of the classes "train", the rest "test"."""
    return ["train" if label < classes // 2 else "test" for label in labels]
