"""A small convolutional network that trains from scratch in a minute on one core."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sumpool.transport.validation import check_at_least_one


class SmallConvNet(nn.Module):
    """Four 3×3 convolutions with batch normalization: the network of the glyph collages.

    The first has stride 2; 2×2 max pooling follows the second and the third. A local feature covers
    8×8 pixels and has a receptive field of 37×37. At the default width there are 98 thousand
    parameters and 8 million multiplications per 48×48 image. Maps are NCHW in shape and NHWC in
    memory, which is fastest on CPUs for so few channels.

    The last layer ends in a ReLU on purpose: all features lie in one orthant, so all embeddings
    start close together, which is where a contrastive loss moves them first.

    Args:
        width: Channels of the first layer; each later layer has twice as many.

    Attributes:
        num_features: Channels of the maps, 8 · ``width``.

    Example:
        >>> SmallConvNet().eval()(torch.zeros(1, 3, 48, 48)).shape
        torch.Size([1, 128, 6, 6])
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        check_at_least_one(width=width)
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
        """Return maps (B, num_features, H/8, W/8) of ``images`` (B, 3, H, W)."""
        out: Tensor = self.layers(images.contiguous(memory_format=torch.channels_last))
        return out


def _layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
