"""Backbones are found by name and say what they give and what they take."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from models.tiny import LAYOUTS, embedder, images
from sumpool.models import BACKBONES, ModelError, build_backbone
from sumpool.models.backbones import run_backbone
from sumpool.models.layout import find_layout


@pytest.mark.parametrize("case", sorted(LAYOUTS))
def test_the_layout_is_what_comes_out(case: str) -> None:
    values, (kind, channels, prefix) = LAYOUTS[case]
    model = embedder(**values)
    assert tuple(model.layout) == (kind, channels, prefix)
    out = model.backbone(images(model))
    assert out.ndim == len(kind)
    assert out.shape[kind.index("C")] == channels


@pytest.mark.parametrize("case", sorted(LAYOUTS))
def test_the_quick_way_on_a_cpu_gives_the_same_features(case: str) -> None:
    model = embedder(**LAYOUTS[case][0]).eval()
    expected = model.backbone(images(model))
    with torch.no_grad():
        found = run_backbone(model.backbone, images(model))
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_vgg_gives_a_map_of_many_positions() -> None:
    model = embedder(backbone="vgg11", crop=64).eval()
    assert model.layout.channels == 512
    assert model.backbone(images(model)).shape[2:] == (2, 2)


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_our_backbones_give_maps(name: str) -> None:
    backbone = build_backbone(name)
    assert backbone.layout.format == "NCHW"
    assert backbone.layout.channels == backbone.network.num_features


@pytest.mark.parametrize(
    ("name", "close"),
    [("resnet500", "resnet50"), ("bn_incepton", "bn_inception"), ("vit_tiny_patch16", "vit_tiny")],
)
def test_an_unknown_name_suggests_close_ones(name: str, close: str) -> None:
    with pytest.raises(ValueError, match=rf"got '{name}': did you mean .*{close}"):
        build_backbone(name)


def test_a_name_like_no_other_says_where_names_are_listed() -> None:
    with pytest.raises(ValueError, match=r"bn_inception, resnet20.*got '§§§': timm\.list_models"):
        build_backbone("§§§")


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match=r"resnet18\.nothing.*Invalid pretrained tag"):
        build_backbone("resnet18.nothing")


def test_timm_networks_take_their_own_statistics() -> None:
    view = build_backbone("test_vit").preprocessing
    settings = timm.get_pretrained_cfg("test_vit")
    assert (view.mean, view.std) == (settings.mean, settings.std)


def test_networks_for_one_size_are_given_that_size() -> None:
    own = build_backbone("test_vit").preprocessing
    assert own.crop == timm.get_pretrained_cfg("test_vit").input_size[-1] == 160
    assert own.resize == round(160 * 8 / 7)
    assert own.area[1] == pytest.approx(own.resize**2)


def test_networks_for_any_size_see_the_view_of_the_experiments() -> None:
    view = build_backbone("test_resnet").preprocessing
    assert (view.resize, view.crop, view.area) == (256, 227, (40**2, 256**2))


def test_sizes_can_be_chosen_and_random_boxes_keep_their_share() -> None:
    view = build_backbone("test_resnet", crop=112).preprocessing
    assert (view.resize, view.crop) == (128, 112)
    assert view.area == (20**2, 128**2)
    view = build_backbone("test_resnet", crop=224, resize=300).preprocessing
    assert (view.resize, view.crop) == (300, 224)
    assert build_backbone("test_resnet", crop=224).preprocessing.resize == 256
    # Small images are shown whole, at every size.
    view = build_backbone("resnet20", crop=64).preprocessing
    assert (view.resize, view.crop) == (64, 64)


def test_options_reach_the_network() -> None:
    blocks = build_backbone("resnet20", options={"blocks": 1}).network.layer1
    assert len(blocks) == 1
    assert build_backbone("test_vit", options={"embed_dim": 32}).layout.channels == 32


@pytest.mark.parametrize("name", ["resnet20", "resnetv2_20", "test_resnet"])
def test_unknown_options_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}'.*color"):
        build_backbone(name, options={"color": "red"})


def test_what_makes_a_backbone_cannot_be_unmade() -> None:
    with pytest.raises(ValueError, match=r"'resnetv2_20' must be among .*preactivated"):
        build_backbone("resnetv2_20", options={"preactivated": False})


def test_a_size_that_does_not_fit_is_an_error_about_crop() -> None:
    with pytest.raises(ValueError, match=r"'large' does not take images of 8×8.*set crop.*Kernel"):
        find_layout(nn.Conv2d(3, 4, 9), "large", 8)


def test_networks_without_local_features_are_refused() -> None:
    flat = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5))
    with pytest.raises(ValueError, match=r"'flat' must give maps .*got \(2, 5\)"):
        find_layout(flat, "flat", 8)


def test_networks_that_misread_a_batch_are_refused() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            position = self.weight.expand(1, 64, 3)
            return x.flatten(2).reshape(1, -1, 3) + position

    with pytest.raises(ValueError, match=r"does not take images of 8×8 pixels.*size of tensor"):
        find_layout(Transposed(), "it", 8)


def test_looking_at_the_layout_leaves_no_trace() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    find_layout(network, "it", 8)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("classifier", [True, False])
def test_weights_come_from_files(tmp_path: Path, suffix: str, classifier: bool) -> None:
    source = timm.create_model("test_resnet", num_classes=5 if classifier else 0)
    path = tmp_path / f"weights{suffix}"
    save = save_file if suffix == ".safetensors" else torch.save
    save(source.state_dict(), path)
    network = build_backbone("test_resnet", weights=str(path)).network
    for name, value in network.state_dict().items():
        assert torch.equal(value, source.state_dict()[name]), name


def test_a_file_of_another_network_names_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file(timm.create_model("test_efficientnet").state_dict(), path)
    with pytest.raises(ModelError, match=r"other\.safetensors does not fit ResNet; missing: .*unk"):
        build_backbone("test_resnet", weights=str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.pth: there is no such file"):
        build_backbone("resnet20", weights=str(tmp_path / "nowhere.pth"))


def test_only_some_backbones_have_packaged_weights() -> None:
    with pytest.raises(ValueError, match=r"for \['tf_efficientnet_lite0'\], not for 'resnet50'"):
        build_backbone("resnet50", weights="packaged")


def test_timm_has_no_weights_for_ours() -> None:
    with pytest.raises(ValueError, match="weights='timm' are there for timm's networks, not for"):
        build_backbone("bn_inception", weights="timm")


def test_networks_that_timm_never_pretrained_are_refused() -> None:
    names = timm.list_models(module="resnet")
    without = next(name for name in names if not timm.models.is_model_pretrained(name))
    with pytest.raises(ValueError, match=f"timm has no pretrained weights of '{without}'"):
        build_backbone(without, weights="timm")


def test_a_failed_download_says_that_it_was_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object, **kwargs: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(ModelError, match=r"'resnet18', whose weights it downloads.*no route"):
        build_backbone("resnet18", weights="timm")


@pytest.mark.parametrize("name", ["checkpoint_path", "pretrained_cfg", "cache_dir", "exportable"])
def test_options_of_a_network_are_an_allow_list(name: str) -> None:
    with pytest.raises(ValueError, match=rf"must be among stages, .*got \['{name}'\]"):
        build_backbone("resnet18", options={name: "/etc/passwd"})
