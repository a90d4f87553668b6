"""The last two stages of a network on one grid."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TwoStages(nn.Module):
    """The last map of a network beside that of the stage before, on the finer grid of the latter.

    The last map is enlarged by bilinear interpolation; channels are concatenated, first those of
    the stage before.

    Args:
        network: A convolutional network of timm, which knows its stages.
        name: What messages call it.

    Raises:
        ValueError: If it has no stages with maps of several sizes.
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
        """Maps (B, C' + C, h, w) of ``images`` (B, 3, H, W)."""
        network: Any = self.network
        last, (fine,) = network.forward_intermediates(images, indices=[self.stage])
        last = F.interpolate(last, fine.shape[-2:], mode="bilinear", align_corners=False)
        return torch.cat((fine, last), 1)
