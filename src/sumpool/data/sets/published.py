"""Bases of published data sets: known layouts, checked against published counts."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Unpack

from sumpool.data.base import DataError, ImageDataset, Transforms
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.files import ImageFiles, missing_files
from sumpool.data.splits import check_split
from sumpool.system.wording import counted, first_few


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

    def complaints(self, split: str, labels: Sequence[int]) -> list[str]:
        """Return what is wrong with the size of a split that has ``labels``."""
        found = Count(len(set(labels)), len(labels))
        return [f"the split {split!r} must have {self}, found {found}"] if found != self else []


class Published(ImageDataset):
    """Mixin for data sets with a published layout and published counts.

    Subclasses define the location of the files (:attr:`layout`) and the expected size of each split
    (:attr:`published`).

    Args:
        root: The folder of the archive, or the folder that contains it.
        split: One of :attr:`published`, or "all".
        check_counts: Whether to require the published numbers of classes and images. Missing
            images are always an error.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If a file is missing, damaged or invalid, or a count differs.
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
        super().__init__(*self._contents(home, split, check_counts), **transforms)

    @abstractmethod
    def _contents(self, home: Path, split: str, check_counts: bool) -> tuple[Any, ...]:
        """Read a split from ``home``; return the arguments of the other base class."""


class PublishedDataset(Published, ImageFiles):
    """Base class of published data sets of image files, which define :meth:`read`."""

    @classmethod
    @abstractmethod
    def read(cls, home: Path) -> Listing:
        """Read the image lists in ``home``, the folder of the archive."""

    def _contents(self, home: Path, split: str, check_counts: bool) -> tuple[Any, ...]:
        listing = self.read(home)
        self._check(home, listing, check_counts)
        chosen = [it for it, part in enumerate(listing.parts) if split in ("all", part)]
        paths, labels = (
            [values[it] for it in chosen] for values in (listing.paths, listing.labels)
        )
        return listing.folder, paths, labels, listing.class_names

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
                complaints += wanted.complaints(split, labels)
        if missing:
            paths = [str(listing.folder / listing.paths[it]) for it in missing]
            share = f"{len(missing):,} of {len(listing.paths):,}"
            complaints.append(f"{share} listed images are missing: {first_few(paths, 5)}")
        if complaints:
            raise DataError(f"{cls.layout.title} in {home}: {'; '.join(complaints)}")
