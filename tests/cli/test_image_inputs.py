"""Verbs that apply a model take messy folders, images without labels, and say what they skip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data.miniatures import class_folders, image
from models.tiny import embedder
from sumpool.cli import main
from sumpool.models import save_embedder

QUICK = ("--device", "cpu", "--workers", "0")


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_embedder(embedder().eval(), "model")


def test_images_without_labels_are_embedded_without_labels() -> None:
    for name in ("b.png", "a.png"):
        image(Path("flat") / name)
    assert main(["embed", "model", "--data", "flat", "--out", "flat.parquet", *QUICK]) == 0
    table = pq.read_table("flat.parquet")
    assert table.column_names == ["name", "embedding"]
    assert table["name"].to_pylist() == ["flat/a.png", "flat/b.png"]
    assert main(["embed", "model", "--data", "flat/b.png", "--out", "one.npy", *QUICK]) == 0
    assert np.allclose(np.load("one.npy")[0], table["embedding"][1].as_py(), atol=1e-6)


def test_images_inside_and_beside_folders_are_embedded_without_labels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class_folders(Path("mixed"), {"sub": 2})
    image(Path("mixed/a.png"))
    assert main(["embed", "model", "--data", "mixed", "--out", "mixed.parquet", *QUICK]) == 0
    table = pq.read_table("mixed.parquet")
    assert table.column_names == ["name", "embedding"]
    assert table["name"].to_pylist() == ["mixed/a.png", "mixed/sub/0.png", "mixed/sub/1.png"]
    assert "mixed has 1 image beside its folders: no labels are read" in caplog.text


def test_images_with_labels_keep_them() -> None:
    class_folders(Path("photos"), {"a": 1, "b": 1})
    assert main(["embed", "model", "--data", "photos", "--out", "x.parquet", *QUICK]) == 0
    assert pq.read_table("x.parquet")["class"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("verb", [("embed", "--out", "x.npy"), ("evaluate",)])
def test_broken_images_are_reported_at_the_start_or_left_out(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    class_folders(Path("photos"), {"a": 4, "b": 4})
    for name in ("photos/a/1.png", "photos/b/2.png"):
        Path(name).write_bytes(b"")
    command = [verb[0], "model", "--data", "photos", *verb[1:], *QUICK]
    assert main(command) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line == (
        "sumpool: error: cannot read 2 images: photos/a/1.png (the file is empty), photos/b/2.png "
        "(the file is empty); leave such images out with --skip-broken"
    )
    assert not Path("x.npy").exists()
    assert main([*command, "--skip-broken"]) == 0
    if verb[0] == "embed":
        assert len(np.load("x.npy")) == 6
