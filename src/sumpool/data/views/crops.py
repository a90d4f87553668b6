"""Crops of decoded pixels as a batch on a device, for every combination of their places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from sumpool.data.views.host_crops import cut_on_host, pack
from sumpool.data.views.resample import Placement, Window, crop, place


class Crops(ABC):
    """Crops of one size out of a buffer, in two parts: on the host, then on the device.

    The host part runs in a thread in advance; the device part only queues work on the device.

    Args:
        pixels: The buffer, uint8 (n,).
        size: Side of the crops.
        device: Where they are wanted.
    """

    def __init__(self, pixels: Tensor, size: int, device: torch.device) -> None:
        self.pixels = pixels
        self.size = size
        self.device = device
        self.pinned = device.type == "cuda"
        self._dtype = torch.float16 if device.type == "cuda" else torch.float32

    @abstractmethod
    def prepare(self, window: Window) -> Any:
        """The part on the host."""

    @abstractmethod
    def finish(self, prepared: Any) -> Tensor:
        """The part on the device: crops (b, 3, size, size) on the scale 0..255."""


class HostCrops(Crops):
    """The buffer is in main memory, and so is the batch, or it is copied when complete."""

    def prepare(self, window: Window) -> Tensor:
        """The whole work, image by image."""
        return cut_on_host(self.pixels, window, self.size)

    def finish(self, prepared: Tensor) -> Tensor:
        """A copy to the device if it is not there."""
        return prepared.to(self.device)


class ResidentCrops(Crops):
    """The buffer is on the device of the batch, which is cropped there at once."""

    def prepare(self, window: Window) -> Placement:
        """The numbers that say what to crop."""
        return place(window, self.size, self.pinned)

    def finish(self, prepared: Placement) -> Tensor:
        """Cropped without waiting for the device."""
        return crop(self.pixels, prepared, self.size, self._dtype)


class StagedCrops(Crops):
    """The buffer is in main memory, the batch on a GPU: boxes are copied there, then cropped."""

    def prepare(self, window: Window) -> tuple[Tensor, Placement]:
        """The boxes without the rest of their images, and the numbers that say where they are."""
        packed, moved = pack(self.pixels, window, self.pinned)
        return packed, place(moved, self.size, self.pinned)

    def finish(self, prepared: tuple[Tensor, Placement]) -> Tensor:
        """Copied and cropped without waiting for the device."""
        packed, placement = prepared
        there = packed.to(self.device, non_blocking=True)
        return crop(there, placement, self.size, self._dtype)


def choose_crops(pixels: Tensor, size: int, device: torch.device) -> Crops:
    """The fastest way for a buffer and a device."""
    if device.type != "cuda":
        return HostCrops(pixels, size, device)
    if pixels.device == device:
        return ResidentCrops(pixels, size, device)
    return StagedCrops(pixels, size, device)
