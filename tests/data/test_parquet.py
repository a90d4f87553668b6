"""Images inside Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.miniatures import parquet
from sumpool.data import BrokenImageError, DataError, ParquetImages

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
