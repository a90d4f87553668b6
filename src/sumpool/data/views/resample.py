"""Batched cropping and resizing of images in a flat pixel buffer, on the buffer's device.

The buffer contains images of different sizes one after another, as rows of RGB pixels, uint8. A
:class:`Window` gives the position of each image of a batch in the buffer and its crop box. The host
computes the few numbers per image that the device needs (:func:`place`) and sends them in one copy;
the device then crops without synchronizing with the host (:func:`crop`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Boxes are padded to multiples of this many pixels, so that memory block sizes recur.
_PADDING = 32
#: Maximum number of values gathered at once; larger batches are processed in parts.
_MOST = 2**25


@dataclass(frozen=True)
class Window:
    """Crops of a batch of images, and the position of the images in the buffer.

    Attributes:
        starts: Buffer position of each image's first value, (b,).
        widths: Width of each image in pixels, (b,).
        boxes: Crop of each image, (b, 4): top, left, height, width.
        flips: Whether each crop is mirrored, (b,).
    """

    starts: NDArray[np.int64]
    widths: NDArray[np.int64]
    boxes: NDArray[np.int64]
    flips: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)


class Placement(NamedTuple):
    """A window in the form that the device needs.

    Attributes:
        numbers: int64 (11, b) in host memory: buffer position of the box's first value, values per
            image row, height and width of the box, whether it is mirrored; then, as the bits of
            float64, for the vertical and the horizontal direction each: first center and step
            between centers in units of the triangle's half-width, and the inverse half-width.
        height: Height that all boxes are padded to.
        width: Width that all boxes are padded to.
        exact: Whether all boxes already have the output size, so that none is resized.
    """

    numbers: Tensor
    height: int
    width: int
    exact: bool


def place(window: Window, size: int, pinned: bool = False) -> Placement:
    """Compute the numbers that the device needs to resize a window's boxes to ``size`` × ``size``.

    If ``pinned``, they are in page-locked memory, which allows asynchronous copies.
    """
    top, left, height, width = window.boxes.T
    sent = torch.empty(11, len(window), dtype=torch.int64, pin_memory=pinned)
    numbers = sent.numpy()
    numbers[0] = window.starts + 3 * (top * window.widths + left)
    numbers[1] = 3 * window.widths
    numbers[2:4] = height, width
    numbers[4] = window.flips
    shrink = window.boxes[:, 2:].T / size  # (2, b)
    inverse = 1 / np.maximum(shrink, 1)
    step = shrink * inverse
    fractions = numbers[5:].view(np.float64).reshape(2, 3, -1)
    fractions[:, 0] = step / 2
    fractions[:, 1] = step
    fractions[:, 2] = inverse
    # Mirrored boxes run from the last center backward.
    fractions[1, 0] += np.where(window.flips, step[1] * (size - 1), 0)
    fractions[1, 1] *= np.where(window.flips, -1, 1)
    exact = bool((window.boxes[:, 2:] == size).all())
    return Placement(sent, _padded(height), _padded(width), exact)


def _padded(sides: NDArray[np.int64]) -> int:
    """Round the largest of ``sides`` up to a multiple of the padding."""
    return -(-int(sides.max()) // _PADDING) * _PADDING


def crop(
    pixels: Tensor, placement: Placement, size: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Crop boxes of any size, resize them to ``size`` × ``size`` and mirror the flipped ones.

    Resizing is bilinear with antialiasing, as in torchvision's ``resized_crop`` and Pillow's
    ``resize``: each output value is a mean of the box's pixels, weighted by a triangle around its
    center whose half-width is one input pixel or, if the box shrinks, one output pixel. Each
    direction is a matrix of weights, so an image X becomes Y X Wᵀ. The only difference is rounding:
    torchvision and Pillow round to whole gray levels after each direction, this function does not
    round. If no box is resized, pixels are copied.

    Args:
        pixels: The buffer, uint8 (n,).
        placement: The boxes, from :func:`place` with the same ``size``.
        size: Side length of the output.
        dtype: Data type of the matrix products; float16 is accurate to a quarter of a gray level.

    Returns:
        Crops (b, 3, size, size) on the scale 0..255, of ``dtype``, or uint8 if none is resized.
    """
    numbers = placement.numbers.to(pixels.device, non_blocking=True)
    if placement.exact:
        return _copy(pixels, numbers, size)
    padded = placement.height, placement.width
    most = max(1, _MOST // (3 * padded[0] * padded[1]))
    parts = [
        _resize(pixels, part, padded, size, dtype) for part in torch.split(numbers, most, dim=1)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _copy(pixels: Tensor, numbers: Tensor, size: int) -> Tensor:
    """Copy boxes of the output size, uint8 (b, 3, size, size)."""
    corner, stride, _, _, flip = numbers[:5, :, None]  # (b, 1)
    place = torch.arange(size, device=pixels.device)
    rows = corner + stride * place  # (b, size)
    columns = 3 * (place + flip * (size - 1 - 2 * place))  # mirrored: size − 1 − place
    channel = torch.arange(3, device=pixels.device).view(3, 1, 1)
    return pixels[rows[:, None, :, None] + columns[:, None, None, :] + channel]


def _resize(
    pixels: Tensor, numbers: Tensor, padded: tuple[int, int], size: int, dtype: torch.dtype
) -> Tensor:
    """Resize boxes of any size to the output size, (b, 3, size, size)."""
    height, width = padded
    corner, stride, box_height, box_width, _ = numbers[:5, :, None]  # (b, 1)
    fractions = numbers[5:].view(torch.float64).float()
    # Padding repeats the last row or column of a box, with weight 0.
    row = torch.arange(height, device=pixels.device)
    column = torch.arange(3 * width, device=pixels.device)
    rows = corner + stride * torch.minimum(row, box_height - 1)  # (b, height)
    columns = torch.minimum(column, 3 * box_width - 1)  # (b, 3 width)
    images = pixels[rows[:, :, None] + columns[:, None, :]].to(dtype)  # (b, height, 3 width)
    down = _weights(fractions[:3], box_height, height, size).to(dtype)  # (b, size, height)
    across = _weights(fractions[3:], box_width, width, size).to(dtype)  # (b, size, width)
    with torch.autocast(pixels.device.type, enabled=False):
        short: Tensor = down @ images  # (b, size, 3 width)
        channels = short.unflatten(2, (width, 3)).permute(0, 3, 1, 2)  # (b, 3, size, width)
        out: Tensor = channels.flatten(1, 2) @ across.mT  # (b, 3 size, size)
    return out.view(-1, 3, size, size)


def _weights(fractions: Tensor, sides: Tensor, padded: int, size: int) -> Tensor:
    """Return the weights of ``padded`` input pixels for ``size`` outputs, (b, size, padded).

    ``fractions`` (3, b) are first center, step and inverse half-width; ``sides`` (b, 1) is the
    number of pixels in the box.
    """
    start, step, inverse = fractions[:, :, None]  # (b, 1)
    output = torch.arange(size, device=sides.device, dtype=torch.float32)
    centers = torch.addcmul(start, step, output)  # (b, size)
    pixel = torch.arange(padded, device=sides.device)
    middles = ((pixel + 0.5) * inverse).masked_fill(pixel >= sides, torch.inf)  # (b, padded)
    weights: Tensor = (
        (centers[:, :, None] - middles[:, None, :]).abs_().neg_().add_(1).clamp_(min=0)
    )
    return weights.div_(weights.sum(-1, keepdim=True))
