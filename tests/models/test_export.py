"""Exported models give PyTorch's vectors, without this package."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor

from models.documented_export import example
from models.tiny import LAYOUTS, embedder, images, pictures
from sumpool.models import Embedder, ModelError
from sumpool.models.export.graph import ExportGraph, check_against
from sumpool.models.export.timm_folder import export_timm


def trained(case: str = "timm maps", **values: Any) -> Embedder:
    """A model whose prototypes and statistics are set."""
    model = embedder(**LAYOUTS[case][0], **values)
    model.train()(images(model, 8))
    return model.eval()


def random_pixels(model: Embedder, count: int = 5) -> Tensor:
    side = model.preprocessing.crop
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8)


# The graph


def test_the_graph_normalizes_as_the_preprocessing_does() -> None:
    model = trained()
    pixels = random_pixels(model)
    with torch.no_grad():
        expected = model(model.preprocessing.normalize(pixels))
        for where in ("inside", "described"):
            graph = ExportGraph(model, where)
            assert torch.equal(graph(graph.inputs(pixels)), expected)
    with pytest.raises(ValueError, match="must be one of inside, described, got 'outside'"):
        ExportGraph(model, "outside")


def test_a_difference_above_the_limit_is_refused() -> None:
    model = trained()
    graph, pixels = ExportGraph(model), random_pixels(model, 3)
    assert check_against(graph, lambda x: graph(x) + 5e-5, pixels, "file") < 1e-4
    for wrong in (2e-4, float("nan")):
        with pytest.raises(ModelError, match="file was not written: it differs from PyTorch by"):
            check_against(graph, lambda x, wrong=wrong: graph(x) + wrong, pixels, "file")


# timm


@pytest.mark.parametrize("case", ["timm maps", "tokens"])
def test_the_backbone_loads_in_plain_timm(case: str, tmp_path: Path) -> None:
    model = trained(case)
    pixels = random_pixels(model, 2)
    export_timm(model, tmp_path / "out", pixels)
    name = f"local-dir:{tmp_path / 'out'}"
    network = timm.create_model(name, pretrained=True, num_classes=0, global_pool="").eval()
    x = model.preprocessing.normalize(pixels)
    with torch.no_grad():
        assert torch.equal(network(x), model.backbone(x))
    view = timm.data.resolve_model_data_config(network)
    assert list(view["input_size"]) == [3, model.preprocessing.crop, model.preprocessing.crop]
    assert list(view["mean"]) == list(model.preprocessing.mean)
    assert timm.create_model(name, pretrained=True, num_classes=7)(x).shape == (2, 7)


def test_the_documented_lines_for_timm_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, names = trained(), dict[str, Any]()
    export_timm(model, "photos-backbone", random_pixels(model, 1))
    exec(example("timm.create_model"), names)
    # The same crop, up to the rounding of 8 bits.
    (picture,) = pictures((90, 70))
    seen = names["transform"](picture)
    expected = model.preprocessing.normalize(model.preprocessing.test_pixels(picture))
    torch.testing.assert_close(seen, expected, rtol=0, atol=1e-2)


@pytest.mark.parametrize("side", [64, 73, 93])
def test_timm_resizes_to_the_same_side(side: int, tmp_path: Path) -> None:
    model = trained()
    model.preprocessing = replace(model.preprocessing, resize=side, area=None)
    export_timm(model, tmp_path / "out", random_pixels(model, 1))
    stored = json.loads((tmp_path / "out" / "config.json").read_text())["pretrained_cfg"]
    view = {key: stored[key] for key in ("input_size", "crop_pct", "crop_mode")}
    transform = timm.data.create_transform(**view)
    assert transform.transforms[0].size == side


def test_maps_that_are_not_finite_are_not_written_for_timm(tmp_path: Path) -> None:
    model = trained()
    with torch.no_grad():
        next(model.backbone.parameters()).fill_(torch.nan)
    with pytest.raises(ModelError, match="timm's maps differ from those of the model by inf"):
        export_timm(model, tmp_path / "out", random_pixels(model, 1))
    assert not (tmp_path / "out").exists()


def test_backbones_that_timm_lacks_are_refused(tmp_path: Path) -> None:
    pixels = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ModelError, match="timm has no backbone resnet20"):
        export_timm(trained("maps"), tmp_path / "out", pixels)
    with pytest.raises(ModelError, match=r"timm does not load swin_.* without its classifier"):
        export_timm(trained("channels last"), tmp_path / "out", pixels)
    with pytest.raises(ModelError, match="timm has vgg11 only with the layers after its map"):
        export_timm(embedder(backbone="vgg11", crop=64), tmp_path / "out", pixels)
    assert not (tmp_path / "out").exists()


# Files

#: Runs a file with ONNX Runtime where neither this package nor torch can be imported.
ALONE = """
import json, sys
sys.modules["sumpool"] = sys.modules["torch"] = None
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
described = json.loads(session.get_modelmeta().custom_metadata_map["sumpool"])
pixels = np.load(sys.argv[2])
name = described["input"]["name"]
whole = session.run(["embedding"], {name: pixels})[0]
single = session.run(["embedding"], {name: pixels[:1]})[0]
assert np.allclose(whole[:1], single, atol=1e-5)
np.save(sys.argv[3], whole)
print(json.dumps(described))
"""


@pytest.mark.process
@pytest.mark.parametrize("case", ["timm maps", "tokens"])
def test_an_onnx_file_runs_without_this_package(case: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="ONNX export is an optional extra")
    from sumpool.models.export.onnx_file import OnnxEmbedder, export_onnx

    model = trained(case)
    pixels = random_pixels(model)
    file, given, found = (tmp_path / name for name in ("m.onnx", "pixels.npy", "vectors.npy"))
    small = tmp_path / "m.int8.onnx"
    assert export_onnx(model, file, pixels, int8=small) <= 1e-4
    assert str(Path(__file__).parents[2]).encode() not in file.read_bytes()
    np.save(given, pixels.numpy())
    command = [sys.executable, "-c", ALONE, str(file), str(given), str(found)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    view, described = model.preprocessing, json.loads(said)
    assert described["resize_shorter_side"] == view.resize
    assert described["center_crop"] == view.crop
    x = view.normalize(pixels)
    with torch.no_grad():
        expected = model(x)
    np.testing.assert_allclose(np.load(found), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(OnnxEmbedder(file, view)(x), expected, rtol=0, atol=1e-4)
    (picture,) = pictures((90, 70))
    exif = picture.getexif()
    exif[0x0112] = 6  # lies on its side
    picture.save(tmp_path / "photo.jpg", "PNG", exif=exif)
    documented = example("onnxruntime").replace("photos.onnx", "m.onnx")
    code = f"import sys\nsys.modules['sumpool'] = None\n{documented}\nprint(vectors[0].tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    (vector,) = model.encode([tmp_path / "photo.jpg"])
    np.testing.assert_allclose(json.loads(done.stdout), vector, atol=1e-4)
    # Eight bits keep the direction.
    assert float((OnnxEmbedder(small, view)(x) * expected).sum(1).min()) > 0.9
    assert small.stat().st_size < file.stat().st_size


@pytest.mark.process
def test_a_torch_program_runs_without_this_package(tmp_path: Path) -> None:
    from sumpool.models.export.torch_file import export_torch

    model = trained()
    pixels, file = random_pixels(model), tmp_path / "m.pt2"
    assert export_torch(model, file, pixels, preprocessing="described") <= 1e-4
    with zipfile.ZipFile(file) as parts:
        assert not any(b"embedder.py" in parts.read(name) for name in parts.namelist())
    x = model.preprocessing.normalize(pixels)
    torch.save(x, tmp_path / "x.pt")
    command = (
        "import sys; sys.modules['sumpool'] = None; import torch; "
        "extra = {'sumpool': ''}; m = torch.export.load(sys.argv[1], extra_files=extra).module(); "
        "torch.save(m(torch.load(sys.argv[2])), sys.argv[3]); print(extra['sumpool'])"
    )
    paths = (file, tmp_path / "x.pt", tmp_path / "y.pt")
    done = subprocess.run(
        [sys.executable, "-c", command, *map(str, paths)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["normalized_in_graph"] is False
    with torch.no_grad():
        torch.testing.assert_close(torch.load(tmp_path / "y.pt"), model(x), rtol=0, atol=1e-4)


def test_a_file_that_onnx_runtime_cannot_read_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is an optional extra")
    from sumpool.models.export.onnx_file import OnnxEmbedder

    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"broken\.onnx cannot be read by ONNX Runtime"):
        OnnxEmbedder(path, embedder().preprocessing)
