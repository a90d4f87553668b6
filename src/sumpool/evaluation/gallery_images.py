"""JPEG thumbnails of images as the network sees them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

if TYPE_CHECKING:
    from sumpool.data import ImageDataset, ImageFeed
    from sumpool.evaluation.embed import Embeddings

#: Longest side of a thumbnail in a gallery, and JPEG quality of all thumbnails.
SIDE, QUALITY = 144, 82


class Thumbnails:
    """Thumbnails of a feed's images as the network sees them.

    Args:
        feed: The images and their test view.
        prefix: Prefix of the names, which distinguishes the feeds of a gallery.

    Attributes:
        files: The thumbnails created so far, by name.
    """

    def __init__(self, feed: ImageFeed, prefix: str) -> None:
        self._dataset = feed.dataset
        self._view = feed.preprocessing.test_view()
        self._prefix = prefix
        self.files: dict[str, bytes] = {}

    def whole(self, index: int) -> str:
        """Return the name of the thumbnail of image ``index``, created on first use."""
        name = f"{self._prefix}-{index:07d}.jpg"
        if name not in self.files:
            self.files[name] = thumbnail(self._seen(index), SIDE)
        return name

    def cut(
        self, index: int, cell: tuple[int, int], grid: tuple[int, int], name: str
    ) -> tuple[str, tuple[float, float, float, float]]:
        """Crop the position ``cell`` of a ``grid`` with its surroundings.

        The crop is a third of the image or three positions wide, whichever is more, and lies inside
        the image.

        Returns:
            The name of the thumbnail, and left, top, right and bottom of the position in it, as
            fractions.
        """
        image = self._seen(index)
        edges, box = [], []
        for length, place, count in zip((image.height, image.width), cell, grid, strict=True):
            begin, end = place * length / count, (place + 1) * length / count
            span = min(length, max(length / 3, 3 * length / count))
            first = round(min(max((begin + end - span) / 2, 0), length - span))
            last = min(length, first + round(span))
            edges.append((first, last))
            box.append(((begin - first) / (last - first), (end - first) / (last - first)))
        (top, bottom), (left, right) = edges
        name = f"{self._prefix}-{name}.jpg"
        self.files[name] = thumbnail(image.crop((left, top, right, bottom)), SIDE)
        return name, (max(box[1][0], 0), max(box[0][0], 0), min(box[1][1], 1), min(box[0][1], 1))

    def _seen(self, index: int) -> Image.Image:
        pixels: Tensor = self._view(self._dataset.load(index))  # (3, H, W) uint8
        return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


class ShownImages:
    """Embedded images with names, classes and thumbnails.

    Args:
        feed: The images.
        embeddings: Their embeddings, with their indices in the feed's data set.
        prefix: Prefix of the names of thumbnails.
    """

    def __init__(self, feed: ImageFeed, embeddings: Embeddings, prefix: str) -> None:
        self.feed = feed
        self.dataset: ImageDataset = feed.dataset
        self.vectors = embeddings.vectors  # (N, D), on their device
        self.labels = embeddings.labels.cpu()  # (N,)
        self.indices = embeddings.indices.cpu()  # (N,)
        self.thumbnails = Thumbnails(feed, prefix)

    def __len__(self) -> int:
        return len(self.vectors)

    def named(self, row: int) -> dict[str, str]:
        """Return the name and class of the image in ``row``."""
        return {
            "item": self.dataset.item_name(int(self.indices[row])),
            "class_name": self.dataset.class_names[int(self.labels[row])],
        }

    def thumbnail(self, row: int) -> str:
        """Return the name of the thumbnail of the image in ``row``."""
        return self.thumbnails.whole(int(self.indices[row]))

    def batches(self, rows: Sequence[int]) -> Iterator[Tensor]:
        """Yield the preprocessed images of ``rows`` in batches, in that order."""
        for batch in self.feed.test_batches(self.indices[torch.as_tensor(rows)].tolist()):
            yield batch.images


def thumbnail(image: Image.Image, side: int) -> bytes:
    """Encode ``image`` as JPEG, shrunk to fit ``side`` × ``side`` pixels if it is larger."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
