"""CIFAR collages: one image of the class among three that are shared by all classes."""

from __future__ import annotations

import os
from typing import ClassVar, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sumpool.data.base import DataError, ImageDataset, Transforms
from sumpool.data.random_streams import COLLAGES, uniforms
from sumpool.data.sets.cifar import CIFAR100
from sumpool.data.splits import check_split

#: Superclasses whose images are the background of all classes [thesis, sec. 5.3.2].
SHARED = ("large_man-made_outdoor_things", "large_natural_outdoor_scenes", "trees", "flowers")
SPLITS = ("train", "validation", "test")
#: Subclasses of a superclass in each split, by alphabetical position.
_PLACES = {"train": (0, 1), "validation": (2,), "test": (3, 4)}

#: Side length of each of the four tiles of a collage, in pixels.
TILE = 32


class Sources(NamedTuple):
    """The images that make up the collages of a split.

    Attributes:
        pixels: Tiles, (T, 32, 32, 3) uint8, foregrounds first.
        labels: Superclass of each foreground, (F,) int64; the other tiles are backgrounds.
        class_names: Names of the 16 superclasses.
        names: Names of the foreground images.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    names: list[str]


class CifarCollages(ImageDataset):
    r"""Collages of CIFAR-100 images: the pooling has to learn which of four tiles matters.

    The label is one of 16 superclasses. A collage of 2×2 tiles shows an image of its superclass on
    a random tile and, on the others, images of four superclasses that serve as the background of
    all classes. Of the five subclasses of each superclass, in alphabetical order, two are for
    training, one for validation and two for testing, foreground and background alike
    [gsp, suppl. 2.2], [thesis, sec. 5.3.2]. Training collages use CIFAR-100's training images, the
    others its test images, which a network pretrained on CIFAR-100 classification has not seen.

    A collage depends only on the seed, the split and its number.

    Args:
        root: The folder of CIFAR-100, see :class:`CIFAR100`.
        split: "train" (32 subclasses), "validation" (16), "test" (32) or "all".
        draws: Collages per foreground image, with different backgrounds and positions; None for
            10 in training and 1 elsewhere.
        seed: Seed of backgrounds and positions.
        check_counts: Whether to require the published numbers of classes and images of CIFAR-100.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Attributes:
        tiles: The images that collages are composed of, (T, 3, 32, 32) uint8.
        pieces: Indices in ``tiles`` for each collage, row by row, (N, 4) int64.
        foreground_tile: Position of the foreground in each collage, (N,) int64: 0 and 1 in the
            upper row, 2 and 3 in the lower.

    Raises:
        DataError: If a file is missing, damaged or invalid, or a count differs.
    """

    #: Whether images are whole collages or only their foregrounds.
    whole: ClassVar[bool] = True
    in_memory = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        *,
        draws: int | None = None,
        seed: int = 0,
        check_counts: bool = True,
        **transforms: Unpack[Transforms],
    ) -> None:
        check_split(split, SPLITS)
        if draws is not None and draws < 1:
            raise ValueError(f"draws must be None or at least 1, got {draws}")
        tiles, pieces, places, labels, names = [], [], [], [], []
        offset = 0
        for part in SPLITS if split == "all" else (split,):
            sources = _sources(root, part, check_counts)
            copies = draws or (10 if part == "train" and self.whole else 1)
            found, their_places = _draw(sources, copies, seed, SPLITS.index(part))
            tiles.append(sources.pixels)
            pieces.append(found + offset)
            places.append(their_places)
            labels.append(np.tile(sources.labels, copies))
            names += sources.names * copies
            offset += len(sources.pixels)
        super().__init__(
            torch.from_numpy(np.concatenate(labels)), sources.class_names, **transforms
        )
        pixels = np.concatenate(tiles).transpose(0, 3, 1, 2)
        self.tiles = torch.from_numpy(np.ascontiguousarray(pixels))
        self.pieces = torch.from_numpy(np.concatenate(pieces))
        self.foreground_tile = torch.from_numpy(np.concatenate(places))
        self._names = names

    def compose(self, indices: Tensor, tiles: Tensor | None = None) -> Tensor:
        """Compose the collages at ``indices`` (b,), as uint8 (b, 3, 64, 64).

        Pass as ``tiles`` a copy of ``self.tiles`` on another device to compose them there.
        """
        tiles = self.tiles if tiles is None else tiles
        return join_tiles(tiles[self.pieces[indices].to(tiles.device)])

    def load(self, index: int) -> Image.Image:
        """Compose the image at ``index``."""
        (pixels,) = self.compose(torch.tensor([index]))
        return Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()))

    def item_name(self, index: int) -> str:
        """Return the name of the foreground image and the number of the collage."""
        return f"{self._names[index]} collage {index}"


class CifarForegrounds(CifarCollages):
    """The foregrounds of :class:`CifarCollages` alone, 32×32, without background.

    Results on them are the upper bound for a pooling that ignores the background entirely. The
    arguments are the same, but ``draws=None`` is 1, and ``seed`` has no effect.
    """

    whole: ClassVar[bool] = False

    def compose(self, indices: Tensor, tiles: Tensor | None = None) -> Tensor:
        """Return the foregrounds at ``indices`` (b,), as uint8 (b, 3, 32, 32)."""
        tiles = self.tiles if tiles is None else tiles
        chosen = self.pieces[indices, self.foreground_tile[indices]]
        return tiles[chosen.to(tiles.device)]

    def item_name(self, index: int) -> str:
        """Return the name of the foreground image."""
        return self._names[index]


def join_tiles(tiles: Tensor) -> Tensor:
    """Join tiles (b, 4, c, s, s), row by row, to collages (b, c, 2s, 2s).

    Example:
        >>> join_tiles(torch.arange(4).reshape(1, 4, 1, 1, 1)).squeeze()
        tensor([[0, 1],
                [2, 3]])
    """
    batch, _, channels, side, _ = tiles.shape
    rows = tiles.reshape(batch, 2, 2, channels, side, side).permute(0, 3, 1, 4, 2, 5)
    return rows.reshape(batch, channels, 2 * side, 2 * side)


def sub_classes(coarse_of_fine: NDArray[np.int64], split: str) -> dict[int, list[int]]:
    """Return the subclasses of each superclass that belong to a split.

    ``coarse_of_fine`` is the superclass of each subclass, with subclasses numbered alphabetically.
    Raises :class:`DataError` unless every superclass has five.
    """
    found = {}
    for coarse in np.unique(coarse_of_fine).tolist():
        fine = np.flatnonzero(coarse_of_fine == coarse)
        if len(fine) != 5:
            raise DataError(f"super-class {coarse} must have 5 sub-classes, found {len(fine)}")
        found[coarse] = [int(fine[place]) for place in _PLACES[split]]
    return found


def _sources(root: str | os.PathLike[str], split: str, check_counts: bool) -> Sources:
    origin = "train" if split == "train" else "test"
    fine, coarse = (
        CIFAR100(root, origin, labels=labels, check_counts=check_counts)
        for labels in ("fine", "coarse")
    )
    fine_labels, coarse_labels = fine.labels.numpy(), coarse.labels.numpy()
    coarse_of_fine = np.full(len(fine.class_names), -1, dtype=np.int64)
    coarse_of_fine[fine_labels] = coarse_labels
    wanted = sub_classes(coarse_of_fine, split)
    shared = [coarse.class_names.index(name) for name in SHARED]
    others = [it for it in range(len(coarse.class_names)) if it not in shared]
    foreground, background = (
        np.flatnonzero(np.isin(fine_labels, [sub for it in part for sub in wanted[it]]))
        for part in (others, shared)
    )
    class_of = np.full(len(coarse.class_names), -1, dtype=np.int64)
    class_of[others] = np.arange(len(others))
    return Sources(
        np.concatenate([fine.pixels[foreground], fine.pixels[background]]),
        class_of[coarse_labels[foreground]],
        tuple(coarse.class_names[it] for it in others),
        [fine.item_name(int(it)) for it in foreground],
    )


def _draw(
    sources: Sources, copies: int, seed: int, row: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the tiles (N, 4) of each collage and the position (N,) of its foreground."""
    front = len(sources.labels)
    count, back = front * copies, len(sources.pixels) - front
    chances = uniforms(seed, COLLAGES, row, 4 * count).reshape(count, 4)
    place = (4 * chances[:, 0]).astype(np.int64)
    # The three backgrounds fill the free positions in order, skipping the foreground's.
    ground = front + (back * chances[:, 1:]).astype(np.int64)  # (N, 3)
    pieces = np.empty((count, 4), dtype=np.int64)
    free = np.arange(3)[None] + (np.arange(3)[None] >= place[:, None])
    np.put_along_axis(pieces, free, ground, axis=1)
    np.put_along_axis(pieces, place[:, None], np.tile(np.arange(front), copies)[:, None], axis=1)
    return pieces, place
