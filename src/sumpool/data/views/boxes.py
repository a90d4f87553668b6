"""Crop boxes: random boxes for training and the central box for testing.

A box is (top, left, height, width) in pixels. Images loaded one at a time and batches cropped from
a cache get the same random boxes: both read the random numbers of a view with :func:`view_draws`
and convert them to a box with :func:`random_boxes`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sumpool.data.random_streams import BLOCK, VIEWS, uniforms

#: Attempts to place a random box before falling back to the central one, as in torchvision.
TRIES = 10
#: Uniform numbers per view: area and aspect of each attempt, position (2), flip, and a spare one so
#: that views start at whole blocks of the generator.
DRAWS = 24
_TOP, _LEFT, _FLIP = 2 * TRIES, 2 * TRIES + 1, 2 * TRIES + 2


def view_draws(
    seed: int, step: int, first: int, count: int, table: int = VIEWS
) -> NDArray[np.float64]:
    """Return the numbers (count, ``DRAWS``) for views ``first``, ``first`` + 1, ... of a batch.

    Row i depends only on the seed, the step and the position ``first`` + i in the global batch.
    """
    skip = first * (DRAWS // BLOCK)
    return uniforms(seed, table, step, count * DRAWS, skip).reshape(count, DRAWS)


def random_flips(draws: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Choose the views to mirror, (b,), with probability 1/2, from draws (b, ``DRAWS``)."""
    flips: NDArray[np.bool_] = draws[:, _FLIP] < 0.5
    return flips


def random_boxes(
    sizes: NDArray[np.int64],
    draws: NDArray[np.float64],
    area: tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]],
    aspect: tuple[float, float],
) -> NDArray[np.int64]:
    """Draw boxes of random area, aspect and position, like torchvision's ``RandomResizedCrop``.

    The area is uniform and the aspect (width over height) log-uniform between two bounds; then the
    sides are rounded. The first of ten attempts that fits into the image is placed uniformly. If
    none fits, the box is central and as large as the bounds of the aspect allow. Unlike in
    torchvision, the bounds of the area are in square pixels instead of shares of the image.

    Args:
        sizes: Height and width of the images, (b, 2).
        draws: Uniform numbers, (b, ``DRAWS``).
        area: Minimum and maximum area in square pixels, for all images or per image, (b, 1).
        aspect: Minimum and maximum ratio of width to height.

    Returns:
        Boxes of shape (b, 4): top, left, height, width.

    Example:
        >>> sizes, draws = np.array([[256, 341]]), view_draws(seed=0, step=0, first=0, count=1)
        >>> top, left, height, width = random_boxes(sizes, draws, (1600, 65536), (3 / 4, 4 / 3))[0]
        >>> bool(top + height <= 256 and left + width <= 341)
        True
    """
    image_height, image_width = sizes[:, 0], sizes[:, 1]
    tried_area = area[0] + (area[1] - area[0]) * draws[:, :TRIES]  # (b, tries)
    low, high = np.log(aspect)
    tried_aspect = np.exp(low + (high - low) * draws[:, TRIES : 2 * TRIES])
    widths = np.rint(np.sqrt(tried_area * tried_aspect)).astype(np.int64)
    heights = np.rint(np.sqrt(tried_area / tried_aspect)).astype(np.int64)
    fits = (widths > 0) & (widths <= image_width[:, None])
    fits &= (heights > 0) & (heights <= image_height[:, None])
    first = np.arange(len(sizes)), fits.argmax(1)
    placed = fits.any(1)

    # The central box is the whole image if the image's aspect lies within the bounds.
    most_height = np.rint(image_width / aspect[0]).astype(np.int64)
    most_width = np.rint(image_height * aspect[1]).astype(np.int64)
    ratio = image_width / image_height
    central_height = np.where(ratio < aspect[0], most_height, image_height)
    central_width = np.where(ratio > aspect[1], most_width, image_width)

    height = np.where(placed, heights[first], central_height)
    width = np.where(placed, widths[first], central_width)
    top_room, left_room = image_height - height, image_width - width
    top = np.where(placed, (draws[:, _TOP] * (top_room + 1)).astype(np.int64), top_room // 2)
    left = np.where(placed, (draws[:, _LEFT] * (left_room + 1)).astype(np.int64), left_room // 2)
    return np.stack([top, left, height, width], axis=1)


def central_boxes(sizes: NDArray[np.int64], crop: int) -> NDArray[np.int64]:
    """Return the central ``crop`` × ``crop`` boxes (b, 4) of images of ``sizes`` (b, 2).

    They are the boxes of torchvision's ``CenterCrop``.
    """
    if (sizes < crop).any():
        height, width = sizes[(sizes < crop).any(1)][0].tolist()
        raise ValueError(
            f"crop must be at most the sides of the image, {height} × {width} pixels, got {crop}; "
            "resize makes small images larger"
        )
    corner = np.rint((sizes - crop) / 2).astype(np.int64)
    return np.concatenate([corner, np.full_like(corner, crop)], axis=1)
