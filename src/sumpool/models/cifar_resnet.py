"""Residual networks for small images: ResNet20 and ResNetV2-20."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sumpool.transport.validation import check_at_least_one


class _Block(nn.Module):
    """Two 3×3 convolutions with a parameter-free shortcut.

    Between stages, the shortcut takes every second pixel and adds channels of zeros, half of them
    in front (option A of [resnet]).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, preactivated: bool) -> None:
        super().__init__()
        self.stride, self.extra = stride, outputs - inputs
        self.preactivated = preactivated
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs if preactivated else outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps (B, outputs, h/stride, w/stride) of maps ``x`` (B, inputs, h, w)."""
        shortcut = x
        if self.stride != 1 or self.extra:
            front = self.extra // 2
            shortcut = x[:, :, :: self.stride, :: self.stride]
            shortcut = F.pad(shortcut, (0, 0, 0, 0, front, self.extra - front))
        if self.preactivated:
            y = self.conv1(torch.relu(self.bn1(x)))
            y = self.conv2(torch.relu(self.bn2(y)))
            return torch.add(shortcut, y)
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(shortcut + y)


class CifarResNet(nn.Module):
    """Residual network of 6n + 2 layers for images of about 32 pixels, without its classifier.

    Three stages of n blocks have 16, 32 and 64 channels; the second and the third halve the size of
    the map [resnet, sec. 4.2]. n = 3 is ResNet20; with pre-activation, where normalization and ReLU
    precede each convolution of a block and follow the last block [resnet-v2], it is ResNetV2-20.
    Shortcuts have no parameters.

    Args:
        blocks: Number n of blocks per stage.
        preactivated: Whether to use the blocks of [resnet-v2].

    Example:
        >>> CifarResNet().eval()(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 64, 8, 8])
    """

    num_features = 64

    def __init__(self, blocks: int = 3, preactivated: bool = False) -> None:
        super().__init__()
        check_at_least_one(blocks=blocks)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        # Follows the first convolution, or with pre-activation the last block.
        self.bn1 = nn.BatchNorm2d(64 if preactivated else 16)
        self.layer1 = _stage(16, 16, 1, blocks, preactivated)
        self.layer2 = _stage(16, 32, 2, blocks, preactivated)
        self.layer3 = _stage(32, 64, 2, blocks, preactivated)
        self.preactivated = preactivated
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (B, 64, H/4, W/4) of ``images`` (B, 3, H, W)."""
        x = self.conv1(images)
        if not self.preactivated:
            x = torch.relu(self.bn1(x))
        maps: Tensor = self.layer3(self.layer2(self.layer1(x)))
        return torch.relu(self.bn1(maps)) if self.preactivated else maps


def _stage(
    inputs: int, outputs: int, stride: int, blocks: int, preactivated: bool
) -> nn.Sequential:
    first = _Block(inputs, outputs, stride, preactivated)
    rest = [_Block(outputs, outputs, 1, preactivated) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)
