"""ResNet20 and ResNetV2-20 are the networks of their papers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from sumpool.models import CifarResNet


def test_resnet20_has_the_parameters_of_its_paper() -> None:
    # 269,722 with a classifier of ten classes: the 0.27 M of table 6.
    parameters = sum(it.numel() for it in CifarResNet().parameters())
    assert parameters + 64 * 10 + 10 == 269_722


@pytest.mark.parametrize("preactivated", [False, True])
def test_there_are_twenty_layers(preactivated: bool) -> None:
    network = CifarResNet(preactivated=preactivated)
    convolutions = [it for it in network.modules() if isinstance(it, torch.nn.Conv2d)]
    assert len(convolutions) + 1 == 20
    assert [it.out_channels for it in convolutions] == [16] * 7 + [32] * 6 + [64] * 6


@pytest.mark.parametrize("preactivated", [False, True])
@pytest.mark.parametrize(("size", "side"), [(28, 7), (32, 8), (64, 16), (30, 8)])
def test_the_map_is_a_quarter_of_the_image(preactivated: bool, size: int, side: int) -> None:
    network = CifarResNet(preactivated=preactivated).eval()
    assert network(torch.zeros(1, 3, size, size)).shape == (1, 64, side, side)


def test_blocks_that_compute_nothing_pass_their_input_on() -> None:
    network = CifarResNet().eval()
    for stage in (network.layer1, network.layer2, network.layer3):
        for block in stage:
            torch.nn.init.zeros_(block.bn2.weight)
    images = torch.randn(2, 3, 32, 32)
    first = F.relu(network.bn1(network.conv1(images)))
    expected = torch.zeros(2, 64, 8, 8)
    expected[:, 24:40] = first[:, :, ::4, ::4]  # 8 channels of zeros in front, then 16 more
    torch.testing.assert_close(network(images), expected)


def test_preactivated_blocks_leave_the_sum_as_it_is() -> None:
    network = CifarResNet(preactivated=True).eval()
    block = network.layer2[0]
    x = torch.randn(2, 16, 6, 6)
    y = F.conv2d(F.relu(block.bn1(x)), block.conv1.weight, stride=2, padding=1)
    y = F.conv2d(F.relu(block.bn2(y)), block.conv2.weight, padding=1)
    shortcut = torch.zeros(2, 32, 3, 3)
    shortcut[:, 8:24] = x[:, :, ::2, ::2]
    torch.testing.assert_close(block(x), shortcut + y)
    assert (block(x) < 0).any()


@pytest.mark.parametrize("preactivated", [False, True])
def test_every_parameter_learns(preactivated: bool) -> None:
    network = CifarResNet(preactivated=preactivated).train()
    network(torch.randn(4, 3, 16, 16)).square().sum().backward()
    assert all((it.grad != 0).any() for it in network.parameters())


def test_no_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks must be at least 1, got 0"):
        CifarResNet(blocks=0)
