"""The last two stages of a network on one grid."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TwoStages(nn.Module):
    """Concatenates the maps of a network's last two stages on the finer of their grids.

    The last map is upsampled by bilinear interpolation; the channels of the stage before come
    first.

    Args:
        network: A convolutional network of timm, which describes its stages.
        name: Name of the network in error messages.

    Raises:
        ValueError: If the network has no stages with maps of several sizes.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        stages: Any = getattr(network, "feature_info", ())
        strides = {stage["reduction"] for stage in stages}
        maps = getattr(network, "output_fmt", "NCHW") == "NCHW"
        if not (maps and hasattr(network, "forward_intermediates") and len(strides) > 1):
            raise ValueError(f"stages must be 1 for the backbone {name!r}, which has no others")
        self.network = network
        self.stage = len(stages) - 2

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (B, C' + C, h, w) of ``images`` (B, 3, H, W)."""
        network: Any = self.network
        last, (fine,) = network.forward_intermediates(images, indices=[self.stage])
        last = F.interpolate(last, fine.shape[-2:], mode="bilinear", align_corners=False)
        return torch.cat((fine, last), 1)
