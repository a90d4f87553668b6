"""Rendering of single glyphs with the fonts that ship with matplotlib."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sumpool.data.base import DataError

#: The text fonts of matplotlib: three DejaVu families and STIX, four styles each.
FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)

#: Font size at which the extent of a glyph is measured.
_MEASURING_SIZE = 64


def font_folder() -> Path:
    """Return the folder of matplotlib's TrueType fonts."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def check_fonts() -> None:
    """Raise :class:`DataError` if any font file is missing."""
    missing = [f"{face}.ttf" for face in FACES if not (font_folder() / f"{face}.ttf").is_file()]
    if missing:
        raise DataError(
            f"glyphs are drawn with the fonts of matplotlib, but {font_folder()} lacks "
            f"{', '.join(missing)}: install matplotlib {matplotlib.__version__} anew"
        )


@cache
def _character_map(face: str) -> frozenset[int]:
    return frozenset(FT2Font(str(font_folder() / f"{face}.ttf")).get_charmap())


@cache
def faces_with(glyph: str) -> tuple[str, ...]:
    """Return the names in :data:`FACES` whose fonts have ``glyph``.

    Example:
        >>> len(faces_with("A"))
        16
        >>> len(faces_with("Ѫ"))  # the four monospaced faces lack it
        12
    """
    return tuple(face for face in FACES if ord(glyph) in _character_map(face))


@cache
def _font(face: str, size: int) -> ImageFont.FreeTypeFont:
    # The basic layout uses FreeType alone: identical pixels with or without the raqm library.
    return ImageFont.truetype(
        font_folder() / f"{face}.ttf", size, layout_engine=ImageFont.Layout.BASIC
    )


@cache
def _extent(glyph: str, face: str) -> float:
    """Return the longer side of the bounding box of ``glyph``, relative to the font size."""
    left, top, right, bottom = _font(face, _MEASURING_SIZE).getbbox(glyph)
    return max(right - left, bottom - top) / _MEASURING_SIZE


@cache
def _upright(glyph: str, face: str, size: int) -> Image.Image:
    """Draw ``glyph`` at a font size, cropped to its bounding box."""
    left, top, right, bottom = (round(it) for it in _font(face, size).getbbox(glyph))
    image = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(image).text((-left, -top), glyph, fill=255, font=_font(face, size))
    return image


def draw_glyph(
    glyph: str, face: str, side: int, extent: float, angle: float, x: float, y: float
) -> NDArray[np.uint8]:
    """Draw a glyph on a square tile.

    Args:
        glyph: One character that the font has (:func:`faces_with`).
        face: One of :data:`FACES`.
        side: Side length of the tile in pixels.
        extent: Target length of the glyph's longer side in pixels, met as closely as integer font
            sizes allow.
        angle: Rotation about the glyph's center, counterclockwise, in degrees.
        x: Position of the glyph's center in pixels from the left.
        y: Position of the glyph's center in pixels from the top.

    Returns:
        Coverage of each pixel, (side, side) uint8; 255 is fully covered.
    """
    ink = _upright(glyph, face, max(1, round(extent / _extent(glyph, face))))
    # Pillow expects the inverse map, from pixels of the tile to positions in the glyph.
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    back = (
        (cos, -sin, ink.width / 2 - cos * x + sin * y),
        (sin, cos, ink.height / 2 - sin * x - cos * y),
    )
    tile = ink.transform(
        (side, side), Image.Transform.AFFINE, back[0] + back[1], Image.Resampling.BILINEAR
    )
    return np.asarray(tile)
