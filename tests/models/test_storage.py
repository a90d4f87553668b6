"""A stored model comes back bit for bit; every defect of its files is named."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from models.tiny import LAYOUTS, embedder, images, pictures
from sumpool.models import ModelError, load_embedder, save_embedder
from sumpool.models import packaged as packaged_module
from sumpool.models.weights import DIGEST, tensors_digest


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the description of a stored model."""
    path = folder / "model.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of a stored model; they still belong to its description."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        names, metadata = file.keys(), file.metadata()
        state = {name: file.get_tensor(name) for name in names}
    change(state)
    belongs = metadata[DIGEST].split()[1]
    save_file(state, path, {DIGEST: f"{tensors_digest(state)} {belongs}"})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    save_embedder(embedder(), folder)
    return folder


@pytest.fixture
def stored(original: Path, tmp_path: Path) -> Path:
    """A stored model to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "model"))


@pytest.mark.parametrize("case", sorted(LAYOUTS))
@pytest.mark.parametrize("pooling", ["gap", "gsp"])
def test_embeddings_are_equal_bit_for_bit(case: str, pooling: str, tmp_path: Path) -> None:
    values, _ = LAYOUTS[case]
    model = embedder(**values, pooling=pooling, normalize="ball", seed=3)
    x = images(model)
    model.train()(x)  # statistics move
    save_embedder(model, tmp_path)
    loaded = load_embedder(tmp_path)
    assert torch.equal(loaded(x), model.eval()(x))
    assert (loaded.config, loaded.seed) == (model.config, 3)
    assert loaded.preprocessing == model.preprocessing
    assert not loaded.training
    state = model.state_dict()
    assert list(loaded.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())


def test_options_of_the_pooling_come_back(tmp_path: Path) -> None:
    options = {"prototypes": 3, "mu": 0.25, "eps": 2.0, "learn_mu": True, "background": True}
    model = embedder(pooling_options=options)
    x = images(model)
    save_embedder(model, tmp_path)
    waiting = load_embedder(tmp_path)
    assert not waiting.pooling.prototypes_ready
    # Prototypes that are set later are the same ones.
    assert torch.equal(waiting.train()(x), model.train()(x))
    with torch.no_grad():
        model.pooling.mu_logit.add_(0.5)
    save_embedder(model, tmp_path)
    loaded = load_embedder(tmp_path)
    assert loaded.pooling.prototypes_ready
    assert loaded.pooling.background
    assert torch.equal(loaded.pooling.mu, model.pooling.mu)
    before = loaded.pooling.prototypes.detach().clone()
    loaded.train()(x + 1)
    assert torch.equal(loaded.pooling.prototypes, before)


def test_preprocessing_that_was_changed_comes_back(tmp_path: Path) -> None:
    model = embedder()
    model.preprocessing = replace(model.preprocessing, resize=40, flip=False)
    save_embedder(model, tmp_path)
    assert load_embedder(tmp_path).preprocessing == model.preprocessing


@pytest.mark.parametrize("pooling", ["gsp", "netvlad"])
def test_half_precision_comes_back(tmp_path: Path, pooling: str) -> None:
    model = embedder(pooling=pooling, embedding_size=16).bfloat16().eval()
    save_embedder(model, tmp_path)
    again = load_embedder(tmp_path)
    x = images(model).bfloat16()
    assert torch.equal(again(x), model(x))
    (picture,) = pictures((40, 40))
    assert torch.equal(again.encode(picture), model.encode(picture))


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_buffers_that_are_not_stored_follow_the_precision(
    tmp_path: Path, kind: torch.dtype
) -> None:
    model = embedder(backbone="resnetblur18", crop=64, pooling="gap").to(kind).eval()
    save_embedder(model, tmp_path)
    x = images(model).to(kind)
    assert torch.equal(load_embedder(tmp_path)(x), model(x))


def test_a_part_in_half_precision_comes_back(tmp_path: Path) -> None:
    model = embedder(backbone="resnetblur18", crop=64, pooling="gap").eval()
    model.backbone.half()
    save_embedder(model, tmp_path)
    again = load_embedder(tmp_path)
    for name, value in model.state_dict().items():
        assert again.state_dict()[name].dtype == value.dtype
        assert torch.equal(again.state_dict()[name], value)
    x = images(model).half()
    assert torch.equal(again.backbone(x), model.backbone(x))


@pytest.mark.process
def test_loading_needs_no_weights_but_those_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "resnet20.pth"
    torch.save(embedder().backbone.state_dict(), source)
    model = embedder(weights=str(source))
    assert model.frozen_batch_norms == 19
    save_embedder(model, tmp_path / "one")
    source.unlink()
    assert load_embedder(tmp_path / "one").frozen_batch_norms == 19

    default = embedder(backbone="tf_efficientnet_lite0", weights="packaged", crop=64)
    save_embedder(default, tmp_path / "two")
    monkeypatch.setattr(packaged_module, "find_spec", lambda name: None)
    loaded = load_embedder(tmp_path / "two")
    x = images(default)
    assert torch.equal(loaded(x), default.eval()(x))
    assert loaded.frozen_batch_norms == 49


def test_the_description_says_what_and_by_whom(stored: Path) -> None:
    values = json.loads((stored / "model.json").read_text())
    assert (values["format"], values["sumpool"], values["seed"]) == (1, version("sumpool"), 0)
    assert values["config"]["backbone"] == "resnet20"
    assert values["preprocessing"]["crop"] == 32
    assert sorted(it.name for it in stored.iterdir()) == ["model.json", "model.safetensors"]


def test_torch_generators_are_left_as_they_were(stored: Path) -> None:
    before = torch.get_rng_state()
    load_embedder(stored)
    assert torch.equal(torch.get_rng_state(), before)


def test_wrappers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="model must be an Embedder, got Sequential"):
        save_embedder(nn.Sequential(embedder()), tmp_path)  # type: ignore[arg-type]


# Writing


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_what_cannot_be_written_leaves_the_old_model(
    stored: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    x = torch.randn(2, 3, 32, 32)
    before = load_embedder(stored)(x)
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(ModelError, match=r"model\.safetensors could not be written: No space"):
            save_embedder(embedder(seed=1), stored)
    assert torch.equal(load_embedder(stored)(x), before)
    assert sorted(it.name for it in stored.iterdir()) == ["model.json", "model.safetensors"]


def test_a_save_cut_between_the_files_is_noticed(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, moves = os.replace, []

    def cut(source: Path, target: Path) -> None:
        if moves:
            raise OSError(errno.EIO, "cut")
        moves.append(target)
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", cut)
        with pytest.raises(ModelError, match=r"model\.json could not be written"):
            save_embedder(embedder(normalize="ball"), stored)
    with pytest.raises(ModelError, match=r"model\.safetensors was not saved together with"):
        load_embedder(stored)


def test_a_model_of_the_same_description_can_be_replaced_at_any_moment(stored: Path) -> None:
    # The usual case, a better model of the same run: either half of a cut save is whole.
    newer = embedder(seed=0)
    nn.init.ones_(newer.map.weight)
    old = (stored / "model.json").read_bytes()
    save_embedder(newer, stored)
    assert (stored / "model.json").read_bytes() == old


# Reading


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(stored: Path, name: str) -> None:
    (stored / name).unlink()
    with pytest.raises(ModelError, match=rf"{name}.*(No such file|no such file)"):
        load_embedder(stored)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere/model\.json cannot be read: No such file"):
        load_embedder(tmp_path / "nowhere")


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.01, 0.5, 0.99999])
def test_cut_tensors_are_noticed(stored: Path, share: float) -> None:
    path = stored / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a whole safetensors file"):
        load_embedder(stored)


@pytest.mark.process
def test_flipped_bits_and_zeroed_blocks_of_tensors_are_noticed(stored: Path) -> None:
    path = stored / "model.safetensors"
    sound = path.read_bytes()
    start = 8 + struct.unpack("<Q", sound[:8])[0]
    for place in range(start, len(sound), (len(sound) - start) // 40):
        for damage in (
            bytes([sound[place] ^ 0x40]),
            bytes(byte ^ 1 for byte in sound[place:][:64]),
        ):
            path.write_bytes(sound[:place] + damage + sound[place + len(damage) :])
            with pytest.raises(ModelError, match="is damaged: its tensors are not those"):
                load_embedder(stored)


def test_an_embedding_that_is_not_finite_is_refused_and_its_image_named(tmp_path: Path) -> None:
    model = embedder()
    with torch.no_grad():
        model.map.weight.fill_(torch.nan)
    picture = Image.new("RGB", (40, 40))
    with pytest.raises(ModelError, match="the embedding of image number 0 is not finite"):
        model.embed([picture])
    picture.save(tmp_path / "gray.png")
    with pytest.raises(ModelError, match=r"the embedding of image .*gray\.png is not finite"):
        model.embed([tmp_path / "gray.png"])


def test_a_model_is_saved_to_the_same_bytes_every_time(original: Path, tmp_path: Path) -> None:
    for _ in range(8):
        save_embedder(load_embedder(original), tmp_path)
        for name in ("model.safetensors", "model.json"):
            assert (tmp_path / name).read_bytes() == (original / name).read_bytes()


def test_a_model_of_earlier_versions_has_no_digest_and_loads(stored: Path) -> None:
    path = stored / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata = {"description_sha256": metadata[DIGEST].split()[1]}
    save_file(state, path, metadata)
    assert load_embedder(stored).state_dict().keys() == state.keys()


def test_a_damaged_header_is_noticed(stored: Path) -> None:
    path = stored / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(struct.pack("<Q", 1 << 40) + content[8:])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a whole safetensors file"):
        load_embedder(stored)


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1', b"\xff\xfe\xfd", b"[1, 2]", b"3"])
def test_a_damaged_description_is_noticed(stored: Path, content: bytes) -> None:
    (stored / "model.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.json (is not JSON|must hold a JSON object)"):
        load_embedder(stored)


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values.__setitem__(key, value)


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        (change("format", 2), r"format 2, written by sumpool .*reads formats up to 1"),
        (change("format", None), "format must be a number from 1 to 1, got None"),
        (change("format", "1"), "format must be a number"),
        (lambda values: values.pop("config"), "config missing or of the wrong type"),
        (lambda values: values.pop("preprocessing"), "preprocessing missing"),
        (change("seed", "three"), "seed missing or of the wrong type"),
        (lambda values: values["config"].update(color="red"), r"got \['color'\]"),
        (lambda values: values["config"].update(backbone="resnet2O"), "did you mean"),
        (lambda values: values["config"].update(embedding_size=-1), "embedding_size must be"),
        (lambda values: values["config"].update(pooling_options={"x": 1}), r"got \['x'\]"),
        (lambda values: values["preprocessing"].update(zoom=2), "zoom"),
        (lambda values: values["preprocessing"].update(crop="wide"), "no model that can be built"),
        (lambda values: values["config"].update(normalize="ball"), "not saved together"),
    ],
)
def test_what_a_description_gets_wrong_is_named(
    stored: Path, edited: Callable[[dict[str, Any]], None], message: str
) -> None:
    edit(stored, edited)
    with pytest.raises(ModelError, match=message) as caught:
        load_embedder(stored)
    assert str(stored) in str(caught.value)


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        (lambda state: state.pop("map.weight"), "missing: map.weight"),
        (
            lambda state: state.pop("backbone.bn1.num_batches_tracked"),
            "missing: backbone.bn1.num",
        ),
        (change("extra", torch.zeros(2)), "unknown: extra"),
        (change("map.weight", torch.zeros(9, 64, 1, 1)), r"map.weight \(9, 64, 1, 1\) in place of"),
        (
            change("backbone.bn1.bias", torch.zeros(1, 16)),
            r"bias \(1, 16\) in place of \(16,\)",
        ),
        (
            change("backbone.bn1.bias", torch.zeros(16).double()),
            "float64 in place of torch.fl",
        ),
    ],
)
def test_what_is_wrong_with_the_tensors_is_named(
    stored: Path, edited: Callable[[dict[str, torch.Tensor]], None], message: str
) -> None:
    edit_tensors(stored, edited)
    with pytest.raises(ModelError, match=message) as caught:
        load_embedder(stored)
    assert str(stored / "model.safetensors") in str(caught.value)
