"""Crops from a flat pixel buffer in host memory, one image at a time."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sumpool.data.views.resample import Window


def cut_on_host(pixels: Tensor, window: Window, size: int) -> Tensor:
    """Crop boxes of any size, resize them to ``size`` × ``size`` and mirror those in ``flips``.

    Uses Pillow, so the pixels are identical to those of views of images loaded from files. The
    buffer ``pixels``, uint8 (n,), is in host memory; the result is uint8 (b, 3, size, size).
    """
    out = np.empty((len(window), size, size, 3), dtype=np.uint8)
    for place, box, flip in zip(out, _boxes(pixels, window), window.flips, strict=True):
        if box.shape != place.shape:
            image = Image.fromarray(np.ascontiguousarray(box))
            box = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
        place[:] = box[:, ::-1] if flip else box
    return torch.from_numpy(out).permute(0, 3, 1, 2).contiguous()


def pack(pixels: Tensor, window: Window, pinned: bool) -> tuple[Tensor, Window]:
    """Copy the boxes of a batch to a new buffer, page-locked if ``pinned``.

    Returns the buffer and a window with the positions of the boxes in it.
    """
    boxes = window.boxes.copy()
    boxes[:, :2] = 0
    lengths = 3 * boxes[:, 2] * boxes[:, 3]
    ends = np.cumsum(lengths)
    packed = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=pinned)
    numbers = packed.numpy()
    for box, start, end in zip(_boxes(pixels, window), ends - lengths, ends, strict=True):
        numbers[start:end].reshape(box.shape)[:] = box
    return packed, Window(ends - lengths, boxes[:, 3], boxes, window.flips)


def _boxes(pixels: Tensor, window: Window) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """Return the boxes as views of the buffer, each (height, width, 3)."""
    numbers = pixels.numpy()
    found = []
    for start, width, (top, left, box_height, box_width) in zip(
        window.starts.tolist(), window.widths.tolist(), window.boxes.tolist(), strict=True
    ):
        first = start + 3 * width * top
        rows = numbers[first : first + 3 * width * box_height].reshape(box_height, width, 3)
        found.append(rows[:, left : left + box_width])
    return found
