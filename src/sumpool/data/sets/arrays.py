"""Data sets that hold all images in memory."""

from __future__ import annotations

import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sumpool.data.base import DataError, ImageDataset, Transforms
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.published import Count, check_split


class ImageArrays(ImageDataset):
    """Base class of data sets of small images, stored in one array.

    Args:
        pixels: Gray images (N, H, W) or RGB images (N, H, W, 3), uint8.
        sources: Source files in the order of the images, each with its number of images.
        labels: The class of each image, (N,) integers that index ``class_names``.
        class_names: One name per class.
        transforms: See :class:`~sumpool.data.base.Transforms`.
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        sources: Sequence[tuple[Path, int]],
        labels: Tensor | Sequence[int],
        class_names: Sequence[str],
        **transforms: Unpack[Transforms],
    ) -> None:
        super().__init__(labels, class_names, **transforms)
        if len(pixels) != len(self):
            raise ValueError(f"pixels must be as many as the {len(self)} labels, got {len(pixels)}")
        self.pixels = pixels
        self._files = [file for file, _ in sources]
        self._starts = [0, *accumulate(count for _, count in sources)]

    def load(self, index: int) -> Image.Image:
        """Return the image at ``index``; gray images get three equal channels."""
        image = Image.fromarray(np.ascontiguousarray(self.pixels[index]))
        return image if image.mode == "RGB" else image.convert("RGB")

    def item_name(self, index: int) -> str:
        """Return the source file of an image and its position in it, such as "cifar/train[17]"."""
        source = bisect_right(self._starts, index) - 1
        return f"{self._files[source]}[{index - self._starts[source]}]"


class PublishedArrays(ImageArrays):
    """Base class of data sets of small images with a published layout and published counts.

    Args:
        root: The folder of the archive, or the folder that contains it.
        split: One of :attr:`published`, or "all".
        check_counts: Whether to require the published numbers of classes and images.
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
        names = self.read_names(home)
        pixels, sources, labels = [], [], list[int]()
        for part, published in self.published.items():
            if split not in ("all", part):
                continue
            first = len(labels)
            for file, images, classes in self.read(home, part, len(names)):
                pixels.append(images)
                labels += classes
                sources.append((file, len(images)))
            found = Count(len(set(labels[first:])), len(labels) - first)
            wanted = published._replace(classes=min(published.classes, len(names)))
            if check_counts and found != wanted:
                raise DataError(
                    f"{self.layout.title} in {home}: the split {part!r} must have {wanted}, "
                    f"found {found}"
                )
        whole = pixels[0] if len(pixels) == 1 else np.concatenate(pixels)
        super().__init__(whole, sources, labels, names, **transforms)

    @abstractmethod
    def read_names(self, home: Path) -> Sequence[str]:
        """Return the class names."""

    @abstractmethod
    def read(
        self, home: Path, part: str, classes: int
    ) -> Iterator[tuple[Path, NDArray[np.uint8], list[int]]]:
        """Yield path, images and labels of each file of a split; labels must be < ``classes``."""
