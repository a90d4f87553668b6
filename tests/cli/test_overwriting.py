"""No command writes over its input, or over files that it did not make, unless asked to."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from models.tiny import embedder
from sumpool.cli import main
from sumpool.models import save_embedder

FOREIGN = "<!DOCTYPE html><title>my own page</title>"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(arguments: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(name).read_bytes()
    assert main(arguments.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name} exists already" in line
    assert "--overwrite" in line
    assert Path(name).read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        "embed model --data . --out a-file/five.npy",
        "evaluate model --data . --out a-file/there",
        "export model --format onnx --out a-file/model.onnx",
    ],
)
def test_a_place_that_takes_no_files_is_refused_before_anything_is_computed(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a-file").touch()
    assert main(arguments.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "a-file/" in line
    assert line.endswith("/a-file is no folder")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("embed model --data . --out five.npy", "five.npy"),
        ("embed model --data . --out five.npy", "five.names.csv"),
        ("embed model --data . --out five.parquet", "five.parquet"),
        ("evaluate model --data . --out there", "there/metrics.json"),
        ("evaluate model --data . --out there", "there/embeddings.npy"),
        ("evaluate model --data . --out there", "there/SHA256SUMS"),
        ("evaluate model --data . --out there", "there/gallery-labels.npy"),
        ("evaluate model --data . --gallery all --out there", "there/gallery-items.json"),
        ("report run", "run/report.html"),
        ("report run --out my.html", "my.html"),
        ("report run other", "comparison.html"),
        ("bench table --file table.tex --format latex", "table.tex"),
        ("bench table --file table.html --format html", "table.html"),
        ("bench recipes", "recipes/fair/cub/c1-gap.yaml"),
        ("study toy --out there", "there/report.html"),
        ("study toy --out there", "there/tables.md"),
        ("study toy --out there", "there/figure-1.png"),
        ("study all --out there", "there/report.html"),
        ("demo --out there", "there/report.html"),
    ],
)
def test_a_file_that_is_there_is_refused_before_anything_is_computed(
    arguments: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(FOREIGN)
    refused(arguments, name, capsys)


def test_the_list_of_images_is_not_overwritten_by_the_names_of_vectors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_embedder(embedder(pooling="gap"), "model")
    for name in ("a.png", "b.png"):
        Image.new("RGB", (40, 40), len(name)).save(name)
    listed = "path,label\na.png,x\nb.png,y\n"
    Path("five.csv").write_text(listed)
    command = "embed model --data five.csv --out five.npy --workers 0"
    assert main(command.split()) == 0
    assert Path("five.csv").read_text() == listed
    assert len(Path("five.names.csv").read_text().splitlines()) == 3
    capsys.readouterr()
    refused(command, "five.npy", capsys)
    assert main([*command.split(), "--overwrite"]) == 0


def test_a_folder_is_never_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("five.npy").mkdir()
    assert main(["embed", "model", "--data", ".", "--out", "five.npy", "--overwrite"]) == 1
    assert "five.npy is a folder: choose another name" in capsys.readouterr().err
