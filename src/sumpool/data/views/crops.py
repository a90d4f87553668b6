"""Crops of decoded pixels as a batch on a device, for every combination of their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sumpool.data.views.host_crops import cut_on_host, pack
from sumpool.data.views.resample import Placement, Window, crop, place


class Crops(NamedTuple):
    """Crops of one size out of a buffer, in two parts.

    Attributes:
        prepare: The part on the host, which runs in a thread in advance.
        finish: The part on the device, which only queues work there: from what was prepared to
            crops (b, 3, size, size) on the scale 0..255.
    """

    prepare: Callable[[Window], Any]
    finish: Callable[[Any], Tensor]


def choose_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """The fastest way from a buffer, uint8 (n,), to crops of side ``size`` on ``device``."""
    if device.type != "cuda":
        return host_crops(pixels, size, device)
    return (resident_crops if pixels.device == device else staged_crops)(pixels, size, device)


def host_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """For a buffer in main memory: the host does all of the work, image by image."""
    return Crops(lambda window: cut_on_host(pixels, window, size), lambda batch: batch.to(device))


def resident_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """For a buffer on the device of the batch, which is cropped there at once."""
    pinned, dtype = _transfer(device)
    return Crops(
        lambda window: place(window, size, pinned),
        lambda placement: crop(pixels, placement, size, dtype),
    )


def staged_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """For a buffer in main memory and a batch on a GPU: boxes are copied there, then cropped."""
    pinned, dtype = _transfer(device)

    def prepare(window: Window) -> tuple[Tensor, Placement]:
        packed, moved = pack(pixels, window, pinned)
        return packed, place(moved, size, pinned)

    def finish(prepared: tuple[Tensor, Placement]) -> Tensor:
        packed, placement = prepared
        return crop(packed.to(device, non_blocking=True), placement, size, dtype)

    return Crops(prepare, finish)


def _transfer(device: torch.device) -> tuple[bool, torch.dtype]:
    """Whether transfers use page-locked memory, and the precision of the products."""
    on_gpu = device.type == "cuda"
    return on_gpu, torch.float16 if on_gpu else torch.float32
