"""Decode image files of all common formats to RGB; errors name the file."""

from __future__ import annotations

import errno
import functools
import os
import stat

import numpy as np
from PIL import Image, UnidentifiedImageError

from sumpool.data.base import BrokenImageError

#: Supported formats. Pillow knows more, but some start an external program (EPS), only identify
#: the file (MPEG, HDF5) or contain no image in the usual sense.
FORMATS = (
    "JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA", "DIB", "ICO",
    "PCX", "QOI", "SGI",
)  # fmt: skip

#: Most that the longer side of an image may be, in lengths of the shorter one.
NARROWEST = 200

# The transposition that turns an image upright, by the value of the EXIF orientation tag.
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Entries of an image's info in which Pillow looks for the orientation.
_WITH_ORIENTATION = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")
# Failures of the machine, not of the image: they must not be reported as broken files.
_NOT_THE_FILE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@functools.cache
def image_formats() -> tuple[str, ...]:
    """Return the names in ``FORMATS`` that the installed Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@functools.cache
def image_extensions() -> frozenset[str]:
    """Return the file extensions of images, lowercase with the dot: ".jpg", ".png", ..."""
    formats = image_formats()
    known = Image.registered_extensions().items()
    return frozenset(ending for ending, name in known if name in formats)


def read_image(source: str | os.PathLike[str] | Image.Image) -> Image.Image:
    """Read an image as upright RGB, see :func:`as_rgb`; of an animation, the first frame.

    All file paths and opened images are decoded here, so that every entry point sees the same
    pixels.

    Raises:
        BrokenImageError: If the file is missing, truncated, damaged or not an image.
    """
    try:
        if isinstance(source, Image.Image):
            _check_sides(source)
            source.load()
            return as_rgb(source)
        if not stat.S_ISREG(os.stat(source).st_mode):  # e.g. a pipe: reading might block forever
            raise ValueError("it is no regular file")
        with Image.open(source, formats=image_formats()) as image:
            _check_sides(image)
            image.load()
            return as_rgb(image)
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes can make decoders raise anything
        if isinstance(error, OSError) and error.errno in _NOT_THE_FILE:
            raise
        name = source if not isinstance(source, Image.Image) else _name(source)
        reason = _reason(error, source)
        message = f"cannot read the image {os.fspath(name)}: {reason}"
        raise BrokenImageError(message, reason) from error


def _check_sides(image: Image.Image) -> None:
    # Resizing the shorter side of much narrower ones would take gigabytes.
    if max(image.size) > NARROWEST * min(image.size):
        sides = f"{image.width} × {image.height} pixels"
        raise ValueError(f"of its {sides}, one side is more than {NARROWEST} times the other")


def as_rgb(image: Image.Image) -> Image.Image:
    """Convert ``image`` to RGB with 8 bits per channel, upright according to its EXIF orientation.

    Gray, palette, CMYK and other color spaces are converted. Transparent pixels are composited
    over white, since their own color is arbitrary. 16-bit gray is scaled to 8 bits by its full
    range, 65535 to 255. Pixels without a known range (32-bit integers beyond 16 bits, floating
    point) raise an error. An unreadable EXIF block is ignored.
    """
    turn = _UPRIGHT.get(_orientation(image))
    if image.mode.startswith("I"):  # I;16, I;16B, and I from files of 16 bits
        image = Image.fromarray(_eight_bits(np.asarray(image)))
    elif image.mode == "F":
        raise ValueError("pixels are floating-point numbers, which have no known range")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    if image.mode != "RGB":
        image = image.convert("RGB")
    if turn is not None:
        image = image.transpose(turn)
        for entry in _WITH_ORIENTATION:  # so that it is not applied again
            image.info.pop(entry, None)
    return image


def _eight_bits(
    pixels: np.ndarray[tuple[int, ...], np.dtype[np.integer]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    low, high = int(pixels.min()), int(pixels.max())
    if low < 0 or high > 65535:
        raise ValueError(f"integer pixels must lie in 0..65535, they are {low}..{high}")
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # invalid metadata; the pixels may still be fine
        return 1
    return value if isinstance(value, int) else 1


def _name(image: Image.Image) -> str:
    size = f"{image.width}×{image.height}"
    return str(getattr(image, "filename", "")) or f"of mode {image.mode}, {size} pixels"


def _reason(error: Exception, source: str | os.PathLike[str] | Image.Image) -> str:
    if isinstance(error, UnidentifiedImageError):
        if not isinstance(source, Image.Image) and os.path.getsize(source) == 0:
            return "the file is empty"
        return f"it is in none of the formats {', '.join(image_formats())}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
