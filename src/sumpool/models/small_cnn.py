"""A small convolutional network, trained from nothing in a minute on one core."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Four 3×3 convolutions with batch-norm: the network of the glyph collages.

    The first one has stride 2, a 2×2 maximum follows the second and the third, so that a local
    feature stands for 8×8 pixels and sees 37×37. With 16, 32, 64 and 128 channels it has 98
    thousand parameters and costs 8 million multiplications for an image of 48×48 pixels. It runs in
    the layout NHWC, in which convolutions of so few channels are fastest on CPUs; what it takes and
    gives has the shape NCHW in any case.

    Its last layer ends in a ReLU on purpose. All features then lie in one orthant and all
    embeddings start near to each other, which is where a contrastive loss brings them first.

    Args:
        width: Channels of the first layer; each later one has twice as many as the one before.

    Attributes:
        num_features: Channels of the maps, 8 · ``width``.

    Example:
        >>> SmallConvNet().eval()(torch.zeros(1, 3, 48, 48)).shape
        torch.Size([1, 128, 6, 6])
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        self.num_features = 8 * width
        self.layers = nn.Sequential(
            _layer(3, width, stride=2),
            _layer(width, 2 * width),
            nn.MaxPool2d(2),
            _layer(2 * width, 4 * width),
            nn.MaxPool2d(2),
            _layer(4 * width, 8 * width),
        )
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Maps (B, num_features, H/8, W/8) of ``images`` (B, 3, H, W)."""
        out: Tensor = self.layers(images.contiguous(memory_format=torch.channels_last))
        return out


def _layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
