"""The last two stages of a network on one grid, and the original ResNet-50."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from sumpool.models import BACKBONES, build_backbone, build_embedder
from sumpool.models.config import EmbedderConfig
from sumpool.models.folding import fold_batch_norm
from sumpool.models.resnet50_v1 import resnet50_v1
from transport.generators import source


def images(side: int = 64) -> Tensor:
    return torch.randn(2, 3, side, side, generator=source(0))


def test_two_stages_are_the_maps_of_the_network_on_the_finer_grid() -> None:
    torch.manual_seed(0)
    backbone = build_backbone("test_resnet", crop=64, options={"stages": 2})
    both = backbone.network.eval()
    fine, last = (
        both.network.forward_intermediates(images(), indices=[place])[1][0] for place in (-2, -1)
    )
    out = both(images())
    assert backbone.layout == ("NCHW", fine.shape[1] + last.shape[1], 0)
    torch.testing.assert_close(out[:, : fine.shape[1]], fine)
    larger = F.interpolate(last, fine.shape[-2:], mode="bilinear")
    torch.testing.assert_close(out[:, fine.shape[1] :], larger)


def test_two_stages_keep_the_head_and_the_packaged_weights() -> None:
    name = "tf_efficientnet_lite0"
    both = build_backbone(name, weights="packaged", crop=64, options={"stages": 2})
    one = build_backbone(name, weights="packaged", crop=64)
    assert both.layout.channels == 112 + 1280
    assert both.preprocessing == one.preprocessing
    out, last = both.network.eval()(images()), one.network.eval()(images())
    larger = F.interpolate(last, out.shape[-2:], mode="bilinear")
    torch.testing.assert_close(out[:, 112:], larger, rtol=1e-4, atol=1e-4)


def test_batch_normalization_of_two_stages_is_folded_as_well() -> None:
    network = build_backbone("test_resnet", crop=64, options={"stages": 2}).network.eval()
    before = network(images())
    assert fold_batch_norm(network, images()) > 0
    torch.testing.assert_close(network(images()), before, rtol=1e-4, atol=1e-4)


def test_an_embedder_of_two_stages_pools_the_finer_map() -> None:
    config = EmbedderConfig(
        "test_resnet", "none", 8, "gap", crop=64, backbone_options={"stages": 2}
    )
    model = build_embedder(config).eval()
    assert model(images(), details=True).weights.shape[1:] == (4, 4)


@pytest.mark.parametrize("name", ["test_vit", "small_cnn", "bn_inception"])
def test_networks_without_stages_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"stages must be 1 for the backbone '{name}'"):
        build_backbone(name, options={"stages": 2})


@pytest.mark.parametrize("stages", [0, 3, "two"])
def test_other_numbers_of_stages_are_refused(stages: object) -> None:
    with pytest.raises(ValueError, match=r"stages must be 1 or 2, got"):
        build_backbone("test_resnet", options={"stages": stages})


@pytest.fixture(scope="module")
def original() -> nn.Module:
    torch.manual_seed(0)
    return resnet50_v1().eval()


def test_the_original_resnet_halves_maps_in_the_first_convolution(original: nn.Module) -> None:
    for stage, stride in ((1, 1), (2, 2), (3, 2), (4, 2)):
        block = original.get_submodule(f"layer{stage}.0")
        assert block.conv1.stride == (stride, stride)
        assert block.conv2.stride == (1, 1)
        assert block.downsample[0].stride == (stride, stride)
    norms = [it for it in original.modules() if isinstance(it, nn.BatchNorm2d)]
    assert {norm.eps for norm in norms} == {1e-3}


def test_a_smaller_output_stride_gives_a_finer_map(original: nn.Module) -> None:
    fine = resnet50_v1(output_stride=16).eval()
    fine.load_state_dict(original.state_dict())
    assert original(images()).shape == (2, 2048, 2, 2)
    assert fine(images()).shape == (2, 2048, 4, 4)
    with pytest.raises(ValueError, match="output_stride must be 8, 16 or 32, got 4"):
        resnet50_v1(output_stride=4)


def test_its_tensors_have_the_names_of_timm_and_may_be_halves(
    original: nn.Module, tmp_path: Path
) -> None:
    with torch.device("meta"):
        plain = timm.create_model("resnet50", num_classes=0)
    assert set(original.state_dict()) == set(plain.state_dict())
    state = {name: value.half() for name, value in original.state_dict().items()}
    state = {name: value for name, value in state.items() if "num_batches" not in name}
    file = tmp_path / "resnet50_v1.safetensors"
    save_file({**state, "fc.weight": torch.zeros(1000, 2048).half()}, file)
    backbone = build_backbone("resnet50_v1", weights=str(file), crop=64)
    assert backbone.network.conv1.weight.dtype == torch.float32
    torch.testing.assert_close(
        backbone.network.eval()(images()), original(images()), rtol=0.05, atol=0.02
    )


def test_its_pixels_are_those_of_its_weights() -> None:
    view = BACKBONES["resnet50_v1"].preprocessing
    white = view.normalize(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten()
    torch.testing.assert_close(
        white, torch.tensor([255 - 123.68, 255 - 116.779, 255 - 103.939]), rtol=1e-5, atol=1e-3
    )
