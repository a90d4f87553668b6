"""BN-Inception, the backbone of most published metric learning results."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Inception:
    """Widths of a block's parallel branches: 1×1, 3×3, double 3×3, and pooling with 1×1.

    Attributes:
        name: Name in the checkpoint.
        single: Channels of the 1×1 branch; 0 omits it.
        triple: Channels of the 3×3 branch: of its 1×1 reduction and its 3×3 convolution.
        double: Channels of the double 3×3 branch: of its 1×1 reduction and its 3×3 convolutions.
        project: Channels of the 1×1 convolution after the pooling; 0 omits the convolution.
        pool: "avg" or "max".
        stride: Stride of the pooling and of the last convolution in each 3×3 branch.
    """

    name: str
    single: int
    triple: tuple[int, int]
    double: tuple[int, int]
    project: int
    pool: str = "avg"
    stride: int = 1


#: The blocks in order [batchnorm, fig. 5], as in the Caffe model behind the public weights.
BLOCKS = (
    Inception("inception_3a", 64, (64, 64), (64, 96), 32),
    Inception("inception_3b", 64, (64, 96), (64, 96), 64),
    Inception("inception_3c", 0, (128, 160), (64, 96), 0, "max", 2),
    Inception("inception_4a", 224, (64, 96), (96, 128), 128),
    Inception("inception_4b", 192, (96, 128), (96, 128), 128),
    Inception("inception_4c", 160, (128, 160), (128, 160), 128),
    Inception("inception_4d", 96, (128, 192), (160, 192), 128),
    Inception("inception_4e", 0, (128, 192), (192, 256), 0, "max", 2),
    Inception("inception_5a", 352, (192, 320), (160, 224), 128),
    Inception("inception_5b", 352, (192, 320), (192, 224), 128, "max"),
)


class BNInception(nn.Module):
    """BN-Inception without its classifier [batchnorm]; outputs maps with 1024 channels.

    Modules are named as in the Caffe model (``conv1_7x7_s2``, ``inception_3a_1x1_bn``) and the
    public PyTorch checkpoints (``bn_inception-*.pth``). Inputs are RGB images in 0 to 255 minus
    (128, 117, 104), which are converted to the BGR of the public weights. The map is 7×7 for images
    of 224 and 227 pixels.

    Example:
        >>> BNInception().eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1024, 2, 2])
    """

    num_features = 1024

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        channels = self._add("conv2_3x3", 64, 192, 3)
        for block in BLOCKS:
            channels = self._add_block(block, channels)

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (B, 1024, h, w) of normalized RGB ``images`` (B, 3, H, W)."""
        x = self._run("conv1_7x7_s2", images.flip(1))  # RGB to BGR
        x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        x = self._run("conv2_3x3", self._run("conv2_3x3_reduce", x))
        x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        for block in BLOCKS:
            x = self._run_block(block, x)
        return x

    def _add(self, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> int:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        self.add_module(name, conv)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))
        return outputs

    def _add_block(self, block: Inception, inputs: int) -> int:
        name, stride = block.name, block.stride
        outputs = self._add(f"{name}_1x1", inputs, block.single, 1) if block.single else 0
        reduced, wide = block.triple
        self._add(f"{name}_3x3_reduce", inputs, reduced, 1)
        outputs += self._add(f"{name}_3x3", reduced, wide, 3, stride)
        reduced, wide = block.double
        self._add(f"{name}_double_3x3_reduce", inputs, reduced, 1)
        self._add(f"{name}_double_3x3_1", reduced, wide, 3)
        outputs += self._add(f"{name}_double_3x3_2", wide, wide, 3, stride)
        if not block.project:
            return outputs + inputs
        return outputs + self._add(f"{name}_pool_proj", inputs, block.project, 1)

    def _run(self, name: str, x: Tensor) -> Tensor:
        out: Tensor = getattr(self, f"{name}_bn")(getattr(self, name)(x))
        return F.relu(out, inplace=True)

    def _run_block(self, block: Inception, x: Tensor) -> Tensor:
        name = block.name
        branches = [self._run(f"{name}_1x1", x)] if block.single else []
        branches.append(self._run(f"{name}_3x3", self._run(f"{name}_3x3_reduce", x)))
        deep = self._run(f"{name}_double_3x3_1", self._run(f"{name}_double_3x3_reduce", x))
        branches.append(self._run(f"{name}_double_3x3_2", deep))
        pooled = _pool(block, x)
        branches.append(self._run(f"{name}_pool_proj", pooled) if block.project else pooled)
        return torch.cat(branches, 1)


def _pool(block: Inception, x: Tensor) -> Tensor:
    if block.pool == "avg":
        return F.avg_pool2d(x, 3, 1, padding=1)
    if block.stride == 1:
        return F.max_pool2d(x, 3, 1, padding=1)
    # Caffe rounds sizes up, which matches the parallel convolutions for even sizes; odd ones, which
    # images of 224 and 227 pixels never produce, need padding to match.
    odd = x.shape[-2] % 2, x.shape[-1] % 2
    return F.max_pool2d(x, 3, 2, padding=odd, ceil_mode=True)
