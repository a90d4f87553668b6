"""BN-Inception is the public network: names, sizes, colors, weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from sumpool.models import BNInception, ModelError, build_backbone
from sumpool.models.bn_inception import BLOCKS


@cache
def shapes_alone() -> BNInception:
    with torch.device("meta"):
        return BNInception().eval()


def public_file(path: Path, *, old: bool = False) -> dict[str, Tensor]:
    """A file like the public one, of random weights with a classifier on top."""
    state = shapes_alone().state_dict()
    generator = torch.Generator().manual_seed(3)
    for name, value in state.items():
        if value.is_floating_point():
            state[name] = torch.rand(value.shape, generator=generator) + 0.5
        else:
            state[name] = torch.tensor(7)
    state["last_linear.weight"], state["last_linear.bias"] = torch.zeros(9, 1024), torch.zeros(9)
    if old:
        # torch 0.2 counted no batches and kept the vectors of batch normalization as (1, C).
        state = {
            name: value[None] if "_bn." in name else value
            for name, value in state.items()
            if not name.endswith("num_batches_tracked")
        }
        torch.save(state, path, _use_new_zipfile_serialization=False)
    elif path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return state


def load(path: Path) -> BNInception:
    network = build_backbone("bn_inception", weights=str(path), crop=64).network
    assert isinstance(network, BNInception)
    return network


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Tensor]]:
    path = tmp_path_factory.mktemp("public") / "weights.pth"
    return path, public_file(path)


@pytest.fixture(scope="module")
def network(public: tuple[Path, dict[str, Tensor]]) -> BNInception:
    return load(public[0]).eval()


def test_it_has_the_parameters_of_the_public_network() -> None:
    parameters = sum(parameter.numel() for parameter in shapes_alone().parameters())
    assert parameters == 10_270_240
    # With the classifier of 1000 classes, the 11,295,240 of the public network.
    assert parameters + 1001 * 1000 + 24 * 1000 == 11_295_240


def test_names_are_those_of_the_public_checkpoint() -> None:
    names = {name.rsplit(".", 1)[0] for name in shapes_alone().state_dict()}
    convolutions = {name for name in names if not name.endswith("_bn")}
    assert names == convolutions | {f"{name}_bn" for name in convolutions}
    assert len(convolutions) == 69
    assert {
        "conv1_7x7_s2",
        "conv2_3x3_reduce",
        "conv2_3x3",
        "inception_3a_1x1",
        "inception_3a_3x3_reduce",
        "inception_3a_double_3x3_2",
        "inception_3a_pool_proj",
        "inception_4e_double_3x3_reduce",
        "inception_5b_pool_proj",
    } <= convolutions
    assert not convolutions & {"inception_3c_1x1", "inception_3c_pool_proj", "inception_4e_1x1"}


@pytest.mark.parametrize(("size", "side"), [(224, 7), (227, 7), (97, 3)])
def test_the_map_is_a_32nd_of_the_image(size: int, side: int) -> None:
    images = torch.empty(1, 3, size, size, device="meta")
    assert shapes_alone()(images).shape == (1, 1024, side, side)


def by_hand(
    network: BNInception, name: str, x: Tensor, padding: int = 0, stride: int = 1
) -> Tensor:
    conv, bn = getattr(network, name), getattr(network, f"{name}_bn")
    y = F.conv2d(x, conv.weight, conv.bias, stride, padding)
    y = (y - bn.running_mean[:, None, None]) / (bn.running_var + 1e-5)[:, None, None].sqrt()
    return (y * bn.weight[:, None, None] + bn.bias[:, None, None]).clamp_min(0)


@pytest.mark.parametrize("number", [0, 2, 9])
def test_a_block_is_its_parallel_branches(number: int, network: BNInception) -> None:
    block = BLOCKS[number]
    x = torch.randn(2, getattr(network, f"{block.name}_3x3_reduce").in_channels, 6, 6)
    with torch.no_grad():
        got = network._run_block(block, x)
        part = f"{block.name}_3x3"
        three = by_hand(network, part, by_hand(network, f"{part}_reduce", x), 1, block.stride)
        part = f"{block.name}_double_3x3"
        deep = by_hand(network, f"{part}_1", by_hand(network, f"{part}_reduce", x), 1)
        deep = by_hand(network, f"{part}_2", deep, 1, block.stride)
        if number == 2:  # halves the map and passes the input on
            expected = [three, deep, F.max_pool2d(x, 3, 2, ceil_mode=True)]
        else:
            ones = F.pad(x, (1, 1, 1, 1), value=0.0 if number == 0 else -torch.inf)
            windows = ones.unfold(2, 3, 1).unfold(3, 3, 1)
            pooled = windows.mean((4, 5)) if number == 0 else windows.amax((4, 5))
            single = by_hand(network, f"{block.name}_1x1", x)
            expected = [single, three, deep, by_hand(network, f"{block.name}_pool_proj", pooled)]
    torch.testing.assert_close(got, torch.cat(expected, 1), rtol=1e-4, atol=1e-4)


def test_pixels_arrive_as_bgr_less_the_mean() -> None:
    backbone = build_backbone("bn_inception", crop=64)
    pixels = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    seen = []
    backbone.network.conv1_7x7_s2.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0])
    )
    with torch.no_grad():
        backbone.network.eval()(backbone.preprocessing.normalize(pixels))
    red, green, blue = pixels[0].double()
    expected = torch.stack((blue - 104, green - 117, red - 128)).float()
    torch.testing.assert_close(seen[0][0], expected, rtol=0, atol=1e-4)


@pytest.mark.process
@pytest.mark.parametrize(("name", "old"), [("weights.pth", True), ("weights.safetensors", False)])
def test_public_weights_load(tmp_path: Path, name: str, old: bool) -> None:
    state = public_file(tmp_path / name, old=old)
    loaded = load(tmp_path / name).state_dict()
    for key, value in loaded.items():
        if not key.endswith("num_batches_tracked"):
            assert torch.equal(value, state[key].reshape(value.shape)), key


def test_the_catalog_takes_the_file_by_its_path(
    network: BNInception, public: tuple[Path, dict[str, Tensor]]
) -> None:
    state = public[1]
    assert torch.equal(network.inception_5b_1x1.weight, state["inception_5b_1x1.weight"])


def test_defects_of_a_file_are_named(
    public: tuple[Path, dict[str, Tensor]], tmp_path: Path
) -> None:
    path, state = tmp_path / "weights.pth", dict(public[1])
    del state["inception_4a_1x1.bias"]
    state["inception_9z_1x1.bias"] = torch.zeros(1)
    state["conv2_3x3.weight"] = torch.zeros(192, 64, 5, 5)
    torch.save(state, path)
    with pytest.raises(ModelError) as caught:
        load(path)
    text = str(caught.value)
    assert str(path) in text
    assert "missing: inception_4a_1x1.bias;" in text
    assert "unknown: inception_9z_1x1.bias;" in text
    assert "conv2_3x3.weight (192, 64, 5, 5) in place of (192, 64, 3, 3)" in text


def test_long_lists_of_defects_are_cut(tmp_path: Path) -> None:
    torch.save({"one": torch.zeros(1)}, tmp_path / "weights.pth")
    with pytest.raises(ModelError, match=r"missing: conv1_7x7.* and \d+ more; unknown: one"):
        load(tmp_path / "weights.pth")
