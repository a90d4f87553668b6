"""Glyph collages: a letter among three digits, generated without any download."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sumpool.data.base import ImageDataset, Transforms
from sumpool.data.splits import check_split
from sumpool.data.synthetic.glyph_drawing import check_fonts, draw_glyph, faces_with

#: The classes. Each shape occurs once: duplicates across alphabets (Latin A, Greek Α, Cyrillic А),
#: lowercase letters shaped like their uppercase (s, я) and letters that look like digits
#: (O, l, З, б) are excluded.
LETTERS = (
    "ABCDEFGHIJKLMNPQRSTUVWXYZ"  # Latin
    "abdefghijkmnqrt"
    "ÆŒÞØƏßæþð"
    "ΓΔΘΛΞΠΣΦΨΩ"  # Greek
    "βγδεζηλμξπσςω"
    "ϞϠ"
    "БДЖИЙЛУЦЧШЩЪЫЬЭЮЯ"  # Cyrillic
    "ЂЋЄЉЊЏѢѪ"
)
DIGITS = "0123456789"
SPLITS = ("train", "validation", "test")
PARTS = ("collage", "letter")

#: Side length of each of the four tiles of a collage, in pixels.
TILE = 24
#: Range of the length of a glyph's longer side, relative to the tile.
EXTENT = (0.75, 0.85)
#: Maximum rotation in degrees.
ANGLE = 8.0
#: Range of the brightness of paper and ink, on the scale 0 to 255.
PAPER, INK = (0.0, 80.0), (150.0, 255.0)
#: Standard deviation of the pixel noise.
NOISE = 8.0


def split_of(letter: str) -> str:
    """Return the split of a class, determined by its position in :data:`LETTERS`.

    Every third class is for testing and two more in every fifteen are for validation, so that each
    split has letters of all alphabets.
    """
    place = LETTERS.index(letter)
    if place % 3 == 1:
        return "test"
    return "validation" if place % 15 in (3, 11) else "train"


class GlyphCollages(ImageDataset):
    r"""Letters of three alphabets, each on one tile of a 2×2 collage with three digits.

    The class is the letter: one of 99 Latin, Greek and Cyrillic letters, drawn in one of 16 fonts,
    with random size, rotation, position, brightness and noise. Digits, drawn in the same way, are
    the background shared by all classes: one tile of the four, at a random position, identifies the
    class. This is a smaller version of the CIFAR collage of [thesis, sec. 5.3.2]; the splits have
    disjoint classes.

    An image depends only on the seed, its letter and its number: a larger ``images_per_class`` only
    adds images. All are drawn when the data set is created, thousands per second.

    Args:
        root: Must be None; there is nothing to read.
        split: "train" (53 classes), "validation" (13), "test" (33) or "all" (99).
        images_per_class: Number of images of each letter.
        seed: Seed of the images; the split does not depend on it.
        part: "collage", 48×48 pixels, or "letter", only the letter's tile of 24×24 pixels, in which
            a pooling has nothing to ignore.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Attributes:
        pixels: The images, (N, side, side, 3) uint8.
        letter_tile: Position of the letter in the collage, (N,) int64: 0 and 1 in the upper row, 2
            and 3 in the lower; also for ``part="letter"``.

    Example:
        >>> data = GlyphCollages(split="test", images_per_class=2)
        >>> image, label = data[0]
        >>> image.size, data.class_names[label], int(data.letter_tile[0])
        ((48, 48), 'B', 0)
    """

    in_memory = True

    def __init__(
        self,
        root: None = None,
        split: str = "train",
        images_per_class: int = 40,
        seed: int = 0,
        part: str = "collage",
        **transforms: Unpack[Transforms],
    ) -> None:
        if root is not None:
            raise ValueError(f"root must be None, glyphs are drawn and not read; got {root!r}")
        check_split(split, SPLITS)
        if part not in PARTS:
            raise ValueError(f"part must be one of {PARTS}, got {part!r}")
        for name, value, least in (("images_per_class", images_per_class, 1), ("seed", seed, 0)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        check_fonts()
        classes = [it for it, letter in enumerate(LETTERS) if split in ("all", split_of(letter))]
        labels = torch.tensor(classes).repeat_interleave(images_per_class)
        super().__init__(labels, tuple(LETTERS), **transforms)
        self.images_per_class = images_per_class
        self.part = part
        numbers = range(images_per_class)
        drawn = [draw_collage(seed, LETTERS[it], number) for it in classes for number in numbers]
        self.letter_tile: Tensor = torch.tensor([tile for _, tile in drawn])
        if part == "letter":
            drawn = [(tiles_of(image)[tile], tile) for image, tile in drawn]
        self.pixels: NDArray[np.uint8] = np.stack([image for image, _ in drawn])

    def load(self, index: int) -> Image.Image:
        """Return the image at ``index``."""
        return Image.fromarray(self.pixels[index])

    def item_name(self, index: int) -> str:
        """Return a name with the letter and the number, such as "glyphs/Ж/0003"."""
        letter = self.class_names[int(self.labels[index])]
        return f"glyphs/{letter}/{index % self.images_per_class:04d}"


def draw_collage(seed: int, letter: str, number: int) -> tuple[NDArray[np.uint8], int]:
    """Draw image ``number`` of a letter.

    Returns:
        The collage, (2·TILE, 2·TILE, 3) uint8, and the tile that contains the letter.
    """
    generator = np.random.default_rng((seed, ord(letter), number))
    letter_tile = int(4 * generator.random())
    # One row per tile: digit, face, size, rotation, position x and y, paper, ink.
    chances = generator.random((4, 8))
    tiles = np.empty((4, TILE, TILE), np.float32)
    for tile, (digit, face, size, turn, x, y, paper, ink) in enumerate(chances):
        glyph = letter if tile == letter_tile else DIGITS[int(len(DIGITS) * digit)]
        faces = faces_with(glyph)
        extent = TILE * _between(EXTENT, size)
        margin = extent / 2
        mask = draw_glyph(
            glyph,
            faces[int(len(faces) * face)],
            TILE,
            extent,
            _between((-ANGLE, ANGLE), turn),
            _between((margin, TILE - margin), x),
            _between((margin, TILE - margin), y),
        )
        ground = _between(PAPER, paper)
        tiles[tile] = ground + (_between(INK, ink) - ground) / 255 * mask
    image = tiles.reshape(2, 2, TILE, TILE).swapaxes(1, 2).reshape(2 * TILE, 2 * TILE, 1)
    noise = generator.standard_normal((2 * TILE, 2 * TILE, 1), np.float32)
    gray = (image + NOISE * noise).clip(0, 255).astype(np.uint8)
    return np.broadcast_to(gray, (2 * TILE, 2 * TILE, 3)), letter_tile


def tiles_of(collage: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the four tiles of a collage row by row, (4, TILE, TILE, 3)."""
    return collage.reshape(2, TILE, 2, TILE, 3).swapaxes(1, 2).reshape(4, TILE, TILE, 3)


def _between(bounds: tuple[float, float], chance: float) -> float:
    """Interpolate linearly between two bounds."""
    low, high = bounds
    return low + (high - low) * float(chance)
