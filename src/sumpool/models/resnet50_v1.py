"""The original ResNet-50, whose ImageNet weights Keras distributes."""

from __future__ import annotations

import timm
from torch import nn

#: ε of its batch normalization.
EPS = 1e-3


def resnet50_v1(output_stride: int = 32) -> nn.Module:
    """Build ResNet-50 without pooling and classifier [resnet]; it outputs maps with 2048 channels.

    It is timm's ``resnet50`` with the same names, but as first published: blocks that halve the map
    do so in their first 1×1 convolution, not in the 3×3 one, and batch normalization has ε = 1e-3.
    Its weights expect RGB pixels in 0..255 minus (123.68, 116.779, 103.939). The map is 7×7 for
    images of 224 pixels and 8×8 for 227.

    Args:
        output_stride: Pixels per position of the map: 32, 16 or 8. Below 32, the last stages keep
            the size of the map and dilate their 3×3 convolutions.

    Example:
        >>> import torch
        >>> resnet50_v1(output_stride=16).eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 2048, 4, 4])
    """
    if output_stride not in (8, 16, 32):
        raise ValueError(f"output_stride must be 8, 16 or 32, got {output_stride}")
    network: nn.Module = timm.create_model(
        "resnet50", num_classes=0, global_pool="", output_stride=output_stride
    )
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = EPS
        if name.endswith(".0.conv1"):
            later = network.get_submodule(name.removesuffix("1") + "2")
            assert isinstance(module, nn.Conv2d)
            assert isinstance(later, nn.Conv2d)
            module.stride, later.stride = later.stride, module.stride
    return network
