"""Data sets whose images are all in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sumpool.data.base import ImageDataset, Transform


class ImageArrays(ImageDataset):
    """Images that are slices of arrays: the base of the data sets of small images.

    Args:
        pixels: Grey images (N, H, W) or RGB images (N, H, W, 3), uint8.
        sources: The files the images came from, in order, with the number of images of each.
        labels: The class of each image, (N,) integers that index ``class_names``.
        class_names: One name a class.
        transform: Applied to an image by ``dataset[index]``.
        target_transform: Applied to a label by ``dataset[index]``.

    Attributes:
        pixels: As given.
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        sources: Sequence[tuple[Path, int]],
        labels: Tensor | Sequence[int],
        class_names: Sequence[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        super().__init__(labels, class_names, transform, target_transform)
        if len(pixels) != len(self):
            raise ValueError(f"pixels must be as many as the {len(self)} labels, got {len(pixels)}")
        self.pixels = pixels
        self._files = [file for file, _ in sources]
        self._starts = [0, *accumulate(count for _, count in sources)]

    def load(self, index: int) -> Image.Image:
        """The image at ``index``; grey ones have three equal channels."""
        image = Image.fromarray(np.ascontiguousarray(self.pixels[index]))
        return image if image.mode == "RGB" else image.convert("RGB")

    def item_name(self, index: int) -> str:
        """The file the image at ``index`` is in, with its number there: "cifar/train[17]"."""
        source = bisect_right(self._starts, index) - 1
        return f"{self._files[source]}[{index - self._starts[source]}]"
