"""Batches of crops of decoded pixels, for buffers in main memory and on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sumpool.data.views.host_crops import cut_on_host, pack
from sumpool.data.views.resample import Placement, Window, crop, place

#: Type of the matrix products on a GPU.
_DTYPE = torch.float16


class Crops(NamedTuple):
    """Two-stage computation of crops of one size from a buffer.

    Attributes:
        prepare: The host stage, which runs in a thread in advance.
        finish: The device stage, which only enqueues work: it turns the result of ``prepare`` into
            crops (b, 3, size, size) on the scale 0..255.
    """

    prepare: Callable[[Window], Any]
    finish: Callable[[Any], Tensor]


def choose_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """Choose the fastest way to crop a buffer, uint8 (n,), to side ``size`` on ``device``."""
    if device.type != "cuda":
        return host_crops(pixels, size, device)
    if pixels.device == device:
        return resident_crops(pixels, size)
    return staged_crops(pixels, size, device)


def host_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """Crop a buffer in main memory on the host, image by image."""
    return Crops(lambda window: cut_on_host(pixels, window, size), lambda batch: batch.to(device))


def resident_crops(pixels: Tensor, size: int, pinned: bool = True) -> Crops:
    """Crop a buffer on a GPU there, all images at once, with boxes sent from pinned memory."""
    return Crops(
        lambda window: place(window, size, pinned),
        lambda placement: crop(pixels, placement, size, _DTYPE),
    )


def staged_crops(pixels: Tensor, size: int, device: torch.device, pinned: bool = True) -> Crops:
    """Copy the boxes of a buffer in main memory to a GPU, then crop and resize them there."""

    def prepare(window: Window) -> tuple[Tensor, Placement]:
        packed, moved = pack(pixels, window, pinned)
        return packed, place(moved, size, pinned)

    def finish(prepared: tuple[Tensor, Placement]) -> Tensor:
        packed, placement = prepared
        return crop(packed.to(device, non_blocking=True), placement, size, _DTYPE)

    return Crops(prepare, finish)
