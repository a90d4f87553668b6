"""CUB photographs with clutter: a bird on a mosaic of photographs shared by all classes."""

from __future__ import annotations

import os
from typing import ClassVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sumpool.data.base import BrokenImageError, DataError, ImageDataset, Transforms
from sumpool.data.random_streams import BLOCK, CLUTTER, uniforms
from sumpool.data.sets.cub import CUB200
from sumpool.data.splits import check_split, halves

SPLITS = ("train", "test")
#: Every tenth class is reserved for the background: 010, 020, … 200.
EVERY = 10
#: Side length of an image and of each of the four tiles of its background, in pixels.
SIDE, TILE = 256, 128
#: Range of the image area covered by the photograph.
SHARE = (1 / 4, 1 / 2)
#: Range of the side length of a tile's crop, relative to the photograph's shorter side.
EXTENT = (1 / 2, 1.0)
#: Uniform numbers per image: photo, extent, top and left of each tile, then share, top and left of
#: the foreground, and an unused one.
_DRAWS = 5 * BLOCK


class CubClutter(ImageDataset):
    """Photographs of CUB-200-2011 with clutter: each covers a quarter to half of the image.

    The label is the bird species. An image of 256×256 pixels shows the central square of a
    photograph, on a quarter to half of the area and at a random position, over a background of 2×2
    crops of other photographs. These are of every tenth class, which are used for nothing else and
    are the same in training and test. The other classes keep the numbers and the split of CUB.

    An image depends only on the seed, its photograph and its view: it is the same in "all" and in
    its own split, and with more views, the earlier ones stay the same.

    Args:
        root: The folder of CUB-200-2011, see :class:`CUB200`.
        split: "train" (90 of the first 100 classes), "test" (90 of the last 100) or "all".
        views: Images per photograph, with different backgrounds and positions.
        seed: Seed of backgrounds and positions.
        check_counts: Whether to require the published numbers of classes and images of CUB.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Attributes:
        boxes: Box of the photograph, (N, 4) int64: top, left, height and width in pixels.
        pool: Photographs used for backgrounds, (P,) int64: indices in CUB's "all".
        tiles: Photographs on the tiles, row by row, (N, 4) int64: indices in CUB's "all".

    Raises:
        DataError: If a file is missing or damaged, or a count differs.
    """

    layout: ClassVar = CUB200.layout

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        *,
        views: int = 1,
        seed: int = 0,
        check_counts: bool = True,
        **transforms: Unpack[Transforms],
    ) -> None:
        check_split(split, SPLITS)
        if views < 1:
            raise ValueError(f"views must be at least 1, got {views}")
        photos = CUB200(root, check_counts=check_counts)
        parts = np.array(halves(photos.labels.tolist(), len(photos.class_names)))
        kept = photos.labels.numpy() % EVERY == EVERY - 1
        pool = np.flatnonzero(kept)
        if not len(pool):
            raise DataError(f"{photos.folder} has no photograph of a class kept for the background")
        shown = np.flatnonzero(~kept if split == "all" else ~kept & (parts == split))
        draws = np.concatenate(
            [
                uniforms(seed, CLUTTER, view, _DRAWS * len(photos)).reshape(-1, _DRAWS)[shown]
                for view in range(views)
            ]
        )
        photo = np.tile(shown, views)
        super().__init__(photos.labels[photo], photos.class_names, **transforms)
        self.boxes = torch.from_numpy(_boxes(draws[:, 4 * BLOCK :]))
        self.pool = torch.from_numpy(pool)
        self._crops = draws[:, : 4 * BLOCK].reshape(-1, 4, BLOCK)  # photo, extent, top, left
        self.tiles: Tensor = self.pool[(len(pool) * self._crops[:, :, 0]).astype(np.int64)]
        self._photos, self._photo, self._once = photos, photo, len(shown)

    def load(self, index: int) -> Image.Image:
        """Compose the image at ``index``."""
        image = Image.new("RGB", (SIDE, SIDE))
        for place, number in enumerate(self.tiles[index].tolist()):
            _, extent, top, left = self._crops[index, place].tolist()
            extent = EXTENT[0] + (EXTENT[1] - EXTENT[0]) * extent
            row, column = divmod(place, SIDE // TILE)
            crop = _square(self._load_photo(number), extent, top, left, TILE)
            image.paste(crop, (column * TILE, row * TILE))
        top, left, side, _ = self.boxes[index].tolist()
        photo = self._load_photo(int(self._photo[index]))
        image.paste(_square(photo, 1.0, 0.5, 0.5, side), (left, top))
        return image

    def item_name(self, index: int) -> str:
        """Return the path of the photograph and the number of the view."""
        path = self._photos.item_name(int(self._photo[index]))
        return f"{path} clutter {index // self._once}"

    def _load_photo(self, number: int) -> Image.Image:
        try:
            return self._photos.load(number)
        except BrokenImageError as error:  # the reason names the photograph, one of several
            raise BrokenImageError(str(error)) from error


def _boxes(draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the boxes of the photographs, (N, 4), from draws of share, top and left."""
    low, high = SHARE
    side = (SIDE * np.sqrt(low + (high - low) * draws[:, 0])).astype(np.int64)
    corner = (draws[:, 1:3] * (SIDE - side + 1)[:, None]).astype(np.int64)
    return np.column_stack([corner, side, side])


def _square(photo: Image.Image, extent: float, top: float, left: float, side: int) -> Image.Image:
    """Crop a square, with position ``top`` and ``left`` in 0..1, and resize it to ``side``."""
    length = extent * min(photo.size)
    x, y = left * (photo.width - length), top * (photo.height - length)
    box = (x, y, x + length, y + length)
    return photo.resize((side, side), Image.Resampling.BILINEAR, box=box)
