"""Crops out of a flat buffer of pixels in host memory, one image at a time."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sumpool.data.views.resample import Window


def cut_on_host(pixels: Tensor, window: Window, size: int) -> Tensor:
    """Boxes of any size, brought to ``size`` × ``size`` pixels and mirrored where asked.

    Pillow does the work, so the pixels are those of a view that loads the image itself. The buffer
    ``pixels``, uint8 (n,), is in host memory, the result is uint8 of shape (b, 3, size, size).
    """
    out = np.empty((len(window), size, size, 3), dtype=np.uint8)
    for place, box, flip in zip(out, _boxes(pixels, window), window.flips, strict=True):
        if box.shape != place.shape:
            image = Image.fromarray(np.ascontiguousarray(box))
            box = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
        place[:] = box[:, ::-1] if flip else box
    return torch.from_numpy(out).permute(0, 3, 1, 2).contiguous()


def pack(pixels: Tensor, window: Window, pinned: bool) -> tuple[Tensor, Window]:
    """The boxes of a batch in a buffer of their own, and the same boxes as they lie in it.

    If ``pinned``, the new buffer is in page-locked memory.
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
    """The boxes as views of the buffer, each (height, width, 3)."""
    numbers = pixels.numpy()
    found = []
    for start, width, (top, left, box_height, box_width) in zip(
        window.starts.tolist(), window.widths.tolist(), window.boxes.tolist(), strict=True
    ):
        first = start + 3 * width * top
        rows = numbers[first : first + 3 * width * box_height].reshape(box_height, width, 3)
        found.append(rows[:, left : left + box_width])
    return found
