"""Data sets that hold all images in memory."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sumpool.data.base import DataError, ImageDataset, Transforms
from sumpool.data.sets.published import Published


class ImageArrays(ImageDataset):
    """Base class of data sets of small images, stored in one array.

    Args:
        pixels: Gray images (N, H, W) or RGB images (N, H, W, 3), uint8.
        sources: Source files in the order of the images, each with its number of images.
        labels: The class of each image, (N,) integers that index ``class_names``.
        class_names: One name per class.
        transforms: See :class:`~sumpool.data.base.Transforms`.
    """

    in_memory = True

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


class PublishedArrays(Published, ImageArrays):
    """Base class of published data sets of small images."""

    @abstractmethod
    def read_names(self, home: Path) -> Sequence[str]:
        """Return the class names."""

    @abstractmethod
    def read(
        self, home: Path, part: str, classes: int
    ) -> Iterator[tuple[Path, NDArray[np.uint8], list[int]]]:
        """Yield path, images and labels of each file of a split; labels must be < ``classes``."""

    def _contents(self, home: Path, split: str, check_counts: bool) -> tuple[Any, ...]:
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
            wanted = published._replace(classes=min(published.classes, len(names)))
            if check_counts and (wrong := wanted.complaints(part, labels[first:])):
                raise DataError(f"{self.layout.title} in {home}: {wrong[0]}")
        return pixels[0] if len(pixels) == 1 else np.concatenate(pixels), sources, labels, names
