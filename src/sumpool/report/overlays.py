"""Overlays of pooling weights on images, with one scale per page."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from PIL import Image

MAP = mpl.colormaps["inferno"]
#: Opacity of the heat map over the gray image.
HEAT = 0.62


def scale_top(maps: Iterable[NDArray[np.float32]]) -> float:
    """Return the upper end of a scale from 0: the largest weight, at least twice an equal one."""
    return max([2.0, *(float(weights.max()) for weights in maps)])


def overlay(jpeg: bytes, weights: NDArray[np.float32], top: float) -> bytes:
    """Draw weights as a heat map over the gray image, as JPEG.

    Args:
        jpeg: The image.
        weights: Weight of each position relative to an equal one, (h, w); interpolated in between.
        top: The weight that is drawn brightest.
    """
    blend = blended(np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")), weights, top)
    buffer = io.BytesIO()
    Image.fromarray(blend).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def blended(
    image: NDArray[np.uint8], weights: NDArray[np.float32], top: float
) -> NDArray[np.uint8]:
    """Draw weights (h, w) over the gray image (H, W, 3), as in :func:`overlay`."""
    picture = Image.fromarray(image)
    field = Image.fromarray(np.asarray(weights, np.float32))
    smooth = np.asarray(field.resize(picture.size, Image.Resampling.BILINEAR))
    heat = MAP(np.clip(smooth / top, 0, 1))[..., :3]
    gray = np.asarray(picture.convert("L"))[..., None] / 255
    blend: NDArray[np.uint8] = (255 * (HEAT * heat + (1 - HEAT) * gray) + 0.5).astype(np.uint8)
    return blend


def stored_image(arrays: Mapping[str, NDArray[Any]], number: int, side: int) -> NDArray[np.uint8]:
    """Return one of the stored ``images``, resized to ``side`` pixels; gray if none are stored.

    Results can thus be shared and drawn again where the images must not be shared.
    """
    if "images" not in arrays:
        return np.full((side, side, 3), 128, np.uint8)
    image = Image.fromarray(arrays["images"][number])
    return np.asarray(image.resize((side, side), Image.Resampling.BICUBIC))


def scale_stops() -> list[str]:
    """Return nine colors of the scale, evenly spaced from 0 to its upper end."""
    return [mpl.colors.to_hex(MAP(step / 8)) for step in range(9)]


def effective_share(weights: NDArray[np.float32]) -> float:
    """Return the effective share of positions, 1 / (n Σ p²); 1 for equal weights.

    Example:
        >>> effective_share(np.ones((2, 2), np.float32))
        1.0
    """
    return float(weights.mean() ** 2 / np.square(weights, dtype=np.float64).mean())
