"""``sumpool export`` writes what it says, checked on images, and refuses what it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
import yaml
from jsonargparse import Namespace

import sumpool
from data.miniatures import class_folders, image
from models.tiny import embedder, images
from sumpool.cli import main
from sumpool.cli.export import _dataset
from sumpool.models import save_embedder


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_embedder(embedder(backbone="test_resnet", crop=64, pooling="gap").eval(), "model")


def export(*arguments: str) -> int:
    return main(["export", "model", *arguments])


@pytest.mark.process
def test_the_backbone_goes_to_timm(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "b.png"):
        image(Path("flat") / name)
    command = ("--format", "timm", "--out", "backbone", "--data", "flat")
    assert export(*command) == 0
    assert "maps of 2 images are equal" in capsys.readouterr().out
    network = timm.create_model("local-dir:backbone", pretrained=True, num_classes=0)
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, network.num_features)
    assert export(*command) == 1
    assert "backbone/config.json exists already" in capsys.readouterr().err
    assert export(*command, "--overwrite") == 0


def test_a_model_goes_into_a_folder_with_its_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert export("--format", "hub", "--out", "given") == 0
    model = sumpool.load("model")
    assert torch.equal(sumpool.load("given")(images(model)), model(images(model)))
    assert Path("given/README.md").is_file()
    assert export("--format", "hub", "--out", "given") == 1
    assert "exists already" in capsys.readouterr().err


def test_images_of_the_run_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    class_folders(Path("photos"), {"a": 2, "b": 2})
    Path("run").mkdir()
    Path("model").rename("run/model")
    Path("run/run.json").write_text(json.dumps({}))
    Path("run/config.yaml").write_text(yaml.safe_dump({"data": "photos"}))
    assert main(["export", "run", "--format", "timm", "--out", "one"]) == 0
    assert "maps of 4 images" in capsys.readouterr().out
    Path("photos").rename("moved")
    assert main(["export", "run", "--format", "timm", "--out", "two"]) == 1
    assert "the images of the run, photos, no longer exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "onx", "--out", "x.onnx"), "got 'onx': did you mean onnx?"),
        (("--format", "onnx", "--out", "x"), "out must end in .onnx for onnx, got x"),
        (("--format", "torch-export", "--out", "x.onnx"), "out must end in .pt2"),
        (("--format", "timm", "--out", "x", "--int8"), "int8 is an option of the format onnx"),
        (
            ("--format", "hub", "--out", "x", "--data", "."),
            "data is not an option of the format hub",
        ),
        (
            ("--format", "hub", "--out", "x", "--images", "3"),
            "images is not an option of the format",
        ),
        (
            ("--format", "hub", "--out", "x", "--workers", "3"),
            "workers is not an option of the format",
        ),
        (
            ("--format", "hub", "--out", "x", "--preprocessing", "described"),
            "preprocessing is not an",
        ),
        (("--format", "onnx", "--out", "x.onnx", "--preprocessing", "no"), "must be one of inside"),
        (
            ("--format", "onnx", "--out", "x.onnx", "--data-format", "cub"),
            "data_format has no effect without --data",
        ),
        (
            ("--format", "onnx", "--out", "x.onnx", "--data", ".", "--batch-size", "2"),
            "batch_size has no effect without --int8",
        ),
        (("--format", "onnx", "--out", "x.onnx"), "name images to check the file on with --data"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(*arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert [it.name for it in Path().iterdir()] == ["model"]


@pytest.mark.process
def test_eight_bits_are_measured_where_images_have_labels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("onnxscript", reason="ONNX export is an optional extra")
    class_folders(Path("photos"), {"a": 3, "b": 3})
    command = ("--format", "onnx", "--out", "x.onnx", "--int8", "--workers", "0")
    assert export(*command, "--data", "photos") == 0
    said = capsys.readouterr().out
    for words in ("largest difference from PyTorch on 6 images", "ONNX int8", "loss of P@1 in 8"):
        assert words in said
    assert sorted(it.name for it in Path().glob("*.onnx")) == ["x.int8.onnx", "x.onnx"]


def test_all_images_count_where_labels_measure_nothing() -> None:
    class_folders(Path("photos"), {"thumbs": 1})
    for name in "abc":
        image(Path(f"photos/{name}.png"))
    images = Namespace(
        data="photos", format="auto", split=None, allow_outside=False, skip_broken=False
    )
    dataset, _ = _dataset(images)
    assert (dataset.labeled, len(dataset)) == (False, 4)


def test_labels_are_kept_beside_an_image_outside_class_folders() -> None:
    class_folders(Path("photos"), {"a": 2, "b": 2})
    image(Path("photos/overview.png"))
    images = Namespace(
        data="photos", format="auto", split=None, allow_outside=False, skip_broken=False
    )
    dataset, split = _dataset(images)
    assert (dataset.labeled, len(dataset), split) == (True, 4, "all")
