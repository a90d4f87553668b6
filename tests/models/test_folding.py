"""Batch normalization inside convolutions: the same network, its parameters and its gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from sumpool.models import EmbedderConfig, build_embedder
from sumpool.models.folding import fold_batch_norm


def with_statistics(network: nn.Module) -> nn.Module:
    """``network`` in evaluation mode, its batch normalization as if it had learnt."""
    torch.manual_seed(1)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None:
            layer.running_mean.normal_(0, 0.1)
            assert layer.running_var is not None
            layer.running_var.uniform_(0.5, 2)
            if layer.affine:
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                nn.init.normal_(layer.bias, 0, 0.1)
    return network.double().eval()


def gradients(network: nn.Module, images: Tensor) -> list[Tensor]:
    out = network(images)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    return [out.detach(), *(it.grad for it in network.parameters() if it.grad is not None)]


def check_folded(network: nn.Module, images: Tensor, pairs: int) -> None:
    folded = copy.deepcopy(network)
    assert fold_batch_norm(folded, images[:1]) == pairs
    assert list(folded.state_dict()) == list(network.state_dict())
    for got, expected in zip(gradients(folded, images), gradients(network, images), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("backbone", "pairs", "size"),
    [
        pytest.param("tf_efficientnet_lite0", 49, 45, marks=pytest.mark.process),
        pytest.param("bn_inception", 69, 64, marks=pytest.mark.process),
        pytest.param("resnet18", 20, 40, marks=pytest.mark.process),
        ("resnet20", 19, 32),
        ("resnetv2_20", 9, 32),  # normalization comes first there: the others follow a sum
        pytest.param("densenet121", 59, 64, marks=pytest.mark.process),
    ],
)
def test_a_folded_network_is_the_network(backbone: str, pairs: int, size: int) -> None:
    config = EmbedderConfig(backbone, "none", 16, pooling="gap", pooling_options={})
    network = with_statistics(build_embedder(config).backbone)
    check_folded(network, torch.randn(2, 3, size, size, dtype=torch.float64), pairs)


@pytest.mark.parametrize(
    "layers",
    [
        lambda: (nn.Conv2d(3, 4, 3, bias=True), nn.BatchNorm2d(4)),
        lambda: (nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4, affine=False)),
        lambda: (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4)),
        lambda: (Conv2dSame(3, 6, 3, stride=2, groups=3), BatchNormAct2d(6)),
        lambda: (nn.Conv2d(3, 4, 3), BatchNormAct2d(4, apply_act=False)),
    ],
)
def test_every_kind_of_pair_is_folded(layers: Callable[[], tuple[nn.Module, ...]]) -> None:
    network = with_statistics(nn.Sequential(*layers(), nn.Conv2d(layers()[1].num_features, 2, 1)))  # type: ignore[arg-type]
    check_folded(network, torch.randn(2, 3, 9, 7, dtype=torch.float64), 1)


class Branches(nn.Module):
    """A convolution whose output goes to more than its normalization."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.norm, self.other = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.how = how

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.first(images)
        if self.how == "sum":
            out: Tensor = x + self.norm(x)
            return out
        if self.how == "list":
            return torch.cat([self.norm(x), x])
        if self.how == "two normalizations":
            return torch.cat([self.norm(x), self.other(x)])
        if self.how == "two calls":
            return torch.cat([self.norm(x), self.norm(self.first(2 * images))])
        between: Tensor = self.norm(x.relu())
        return between


@pytest.mark.parametrize(
    "how", ["sum", "list", "two normalizations", "two calls", "something between"]
)
def test_what_is_used_elsewhere_is_left_alone(how: str) -> None:
    check_folded(with_statistics(Branches(how)), torch.randn(2, 3, 9, 7, dtype=torch.float64), 0)


def test_statistics_of_batches_are_left_alone() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    images = torch.randn(2, 3, 9, 9)
    assert fold_batch_norm(network.train(), images) == 0
    without = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))
    assert fold_batch_norm(without.eval(), images) == 0


def test_what_is_folded_once_is_folded() -> None:
    network = with_statistics(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    images = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    assert [fold_batch_norm(network, images) for _ in range(2)] == [1, 0]


@pytest.mark.process
def test_compiled_code_serves_all_networks_of_a_kind() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    def run(network: nn.Module, images: Tensor) -> Tensor:
        out: Tensor = network(images)
        return out

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, dynamic=False, backend=counter)
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    for _ in range(3):
        config = EmbedderConfig("resnet20", "none", 16, pooling="gap", pooling_options={})
        network = with_statistics(build_embedder(config).backbone)
        expected = network(images)
        fold_batch_norm(network, images)
        torch.testing.assert_close(compiled(network, images), expected)
    assert counter.frame_count == 1


def test_finer_maps_of_the_packaged_network_fold_as_well() -> None:
    config = EmbedderConfig(pooling="gap", backbone_options={"output_stride": 16})
    model = build_embedder(config).eval()
    x = torch.randn(1, 3, 227, 227, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model.feature_map(x)
        assert before.shape == (1, 128, 15, 15)
        assert fold_batch_norm(model.backbone, x) == 49
        torch.testing.assert_close(model.feature_map(x), before, rtol=1e-4, atol=1e-4)
