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

#: Longest side of a thumbnail.
SIDE = 144
QUALITY = 82


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
            self.files[name] = _encode(self._seen(index))
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
        self.files[name] = _encode(image.crop((left, top, right, bottom)))
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


def _encode(image: Image.Image) -> bytes:
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)  # does not enlarge smaller ones
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
