"""Pictures of images for visitors: smaller, under a heat map, or a patch."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sumpool.report.overlays import blended
from sumpool.search.queries import Box, View

#: Longest side of a picture in pixels, by its size in URLs.
SIDES = {"small": 256, "large": 1024}
QUALITY = 85


def encode(image: Image.Image) -> bytes:
    """Encode ``image`` as JPEG without metadata."""
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(image)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def shrunk(image: Image.Image, side: int) -> Image.Image:
    """Shrink ``image`` to at most ``side`` pixels on its longer side."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return small


def heat(
    image: Image.Image, window: Box, weights: NDArray[np.float32], top: float, side: int
) -> Image.Image:
    """Draw a gray image under a heat map of weights, dark where the network does not see it.

    Args:
        image: The whole image.
        window: The window that the network sees, in pixels.
        weights: One number per position, (h, w); negative ones are drawn as 0.
        top: The weight drawn brightest.
        side: Longest side of the result.
    """
    small = shrunk(image, side)
    pixels = np.asarray(small)
    out = blended(pixels, np.zeros((1, 1), np.float32), 1.0).copy()
    scale = (small.width / image.width, small.height / image.height)
    x0, y0, x1, y1 = (round(value * scale[place % 2]) for place, value in enumerate(window))
    # At least one pixel, of images that are long and narrow too.
    x0, y0 = min(max(x0, 0), small.width - 1), min(max(y0, 0), small.height - 1)
    x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)
    seen = pixels[y0:y1, x0:x1]
    out[y0:y1, x0:x1] = blended(np.ascontiguousarray(seen), weights, max(top, 1e-12))
    return Image.fromarray(out)


def patch(view: View, cell: tuple[int, int], grid: tuple[int, int], side: int) -> Image.Image:
    """Draw the position ``cell`` of a ``grid`` in a frame, with its surroundings.

    The patch is half of the view or three positions wide, whichever is more.
    """
    image = view.image
    lengths = [max(0.5, 3 / count) for count in grid]
    edges = []
    for length, share, place, count in zip(
        (image.height, image.width), lengths, cell, grid, strict=True
    ):
        span = min(share, 1.0) * length
        first = min(max((place + 0.5) * length / count - span / 2, 0), length - span)
        edges.append((first, span, place * length / count - first, length / count))
    (top, tall, y, high), (left, wide, x, broad) = edges
    factor = side / max(tall, wide)
    size = (max(1, round(wide * factor)), max(1, round(tall * factor)))
    box = (left, top, left + wide, top + tall)
    out = image.resize(size, Image.Resampling.BICUBIC, box=box)
    frame = [x * factor, y * factor, (x + broad) * factor - 1, (y + high) * factor - 1]
    draw = ImageDraw.Draw(out)
    draw.rectangle(frame, outline="black", width=4)
    draw.rectangle(
        [frame[0] + 1, frame[1] + 1, frame[2] - 1, frame[3] - 1], outline="white", width=2
    )
    return out
