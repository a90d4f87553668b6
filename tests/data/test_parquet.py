"""Images inside Parquet files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.miniatures import parquet
from data.pictures import picture
from models.tiny import embedder
from sumpool.cli import main
from sumpool.data import BrokenImageError, DataError, ParquetImages
from sumpool.models import save_embedder
from sumpool.training import TrainConfig
from sumpool.training.splits import open_splits

COLORS = [(255, 0, 0), (0, 128, 0), (0, 0, 255), (255, 255, 255)]


@pytest.mark.parametrize("nested", [False, True])
def test_rows_of_all_files_are_read_in_their_order(nested: bool, tmp_path: Path) -> None:
    data = ParquetImages(parquet(tmp_path, nested=nested))
    assert [data.load(it).getpixel((0, 0)) for it in (3, 0, 1, 2)] == [COLORS[3], *COLORS[:3]]
    assert data.class_names == ("a", "b")
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert [data.item_name(it) for it in (1, 2)] == [
        f"{tmp_path}/0.parquet#1",
        f"{tmp_path}/1.parquet#0",
    ]
    one = ParquetImages(tmp_path / "1.parquet")
    assert len(one) == 2
    assert one.load(0).getpixel((0, 0)) == COLORS[2]


def test_labels_may_be_numbers_or_missing(tmp_path: Path) -> None:
    numbers = ParquetImages(parquet(tmp_path / "numbers", labels=(10, 9, 10, 9)))
    assert (numbers.class_names, numbers.labels.tolist()) == (("9", "10"), [1, 0, 1, 0])
    without = ParquetImages(parquet(tmp_path / "without", labels=None))
    assert not without.labeled
    assert len(without) == 4


def write(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "x.parquet")
    return folder


def test_rows_that_are_no_images_are_broken_images(tmp_path: Path) -> None:
    data = ParquetImages(write(tmp_path, image=[b"no image", None, b"\x89PNG\r\n\x1a\n"]))
    for index, reason in enumerate(("none of the formats", "it is missing", "")):
        with pytest.raises(BrokenImageError, match=rf"x\.parquet#{index}: .*{reason}"):
            data.load(index)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"picture": [b"1"]}, r"need a column image with the bytes .* got picture \(binary\)"),
        ({"image": ["a.jpg"]}, r"need a column image .* got image \(string\)"),
        ({"image": [{"path": "a.jpg"}]}, "need a column image .* got image .struct"),
        ({"image": pa.array([], pa.binary())}, "there is no image in"),
        ({"image": [b"1", b"2"], "label": ["a", None]}, "must be text or whole numbers, without"),
        ({"image": [b"1"], "label": [0.5]}, "must be text or whole numbers"),
    ],
)
def test_files_of_another_kind_are_named(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        ParquetImages(write(tmp_path, **columns))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path) / "1.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"cannot read .*1\.parquet: "):
        ParquetImages(tmp_path)


def test_labels_in_only_some_files_are_an_error(tmp_path: Path) -> None:
    path = parquet(tmp_path) / "1.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["label"]), path)
    with pytest.raises(DataError, match=rf"^{path} lacks the column label, which others have$"):
        ParquetImages(tmp_path)


# Broken rows on the command line


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight classes of six pictures, of which rows 7 and 20 cannot be read."""
    monkeypatch.chdir(tmp_path)
    images: list[bytes | None] = []
    for number in range(48):
        buffer = io.BytesIO()
        picture(64, 72, seed=number).save(buffer, "PNG")
        images.append(buffer.getvalue())
    images[7], images[20] = b"no image", None
    pq.write_table(pa.table({"image": images, "label": np.arange(48) // 6}), "torn.parquet")
    return Path("torn.parquet")


def check_complaint(complaint: str) -> None:
    assert "cannot read 2 images: torn.parquet#7 (it is in none of the formats" in complaint
    assert "torn.parquet#20 (it is missing)" in complaint
    assert complaint.endswith("; leave such images out with --skip-broken\n")


def test_broken_rows_are_found_before_training_or_left_out(torn: Path) -> None:
    config = TrainConfig(data=str(torn), cache="none")
    with pytest.raises(BrokenImageError, match=r"cannot read 2 images: torn\.parquet#7 "):
        open_splits(config, progress=False)
    for cache in ("none", "ram"):
        config = TrainConfig(data=str(torn), cache=cache, skip_broken=True)
        splits = open_splits(config, progress=False)
        assert [name for name, _ in splits.broken] == ["torn.parquet#7", "torn.parquet#20"]
        assert len(splits.train) + len(splits.validation) == 46


@pytest.mark.process
@pytest.mark.parametrize("cache", ["none", "ram"])
def test_training_reports_broken_rows_or_leaves_them_out(
    torn: Path, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = "--recipe=papers --backbone=small_cnn --batch-size=8 --images-per-class=2 --pool=gap "
    small += "--stop.validate-every=3 --stop.max-steps=3 --gallery=false --hardware.workers=0 "
    small += f"--hardware.accelerator=cpu --cache={cache}"
    command = ["train", "--data", str(torn), *small.split()]
    assert main([*command, "--out", "a"]) == 1
    check_complaint(capsys.readouterr().err)
    assert not Path("a").exists()
    assert main([*command, "--out", "b", "--skip-broken"]) == 0
    left_out = json.loads(Path("b/run.json").read_text())["left_out"]
    assert [*left_out] == ["torn.parquet#7", "torn.parquet#20"]


@pytest.mark.parametrize("verb", [("embed", "--out", "x.npy"), ("evaluate",)])
def test_verbs_report_broken_rows_or_leave_them_out(
    torn: Path, verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    save_embedder(embedder().eval(), "model")
    command = [verb[0], "model", "--data", str(torn), *verb[1:], "--device=cpu", "--workers=0"]
    assert main(command) == 1
    check_complaint(capsys.readouterr().err)
    assert main([*command, "--skip-broken"]) == 0
    if verb[0] == "embed":
        assert len(np.load("x.npy")) == 46
