"""Images without classes: a folder of files, or one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.miniatures import class_folders, image, text
from sumpool.data import DataError
from sumpool.data.sets.flat import FlatImages, is_flat


def test_the_images_of_a_folder_are_sorted_and_have_no_labels(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg", ".hidden.png"):
        image(tmp_path / name)
    text(tmp_path / "notes.txt", "x")
    (tmp_path / "empty").mkdir()
    assert is_flat(tmp_path)
    data = FlatImages(tmp_path)
    assert [Path(data.item_name(it)).name for it in range(len(data))] == ["a.jpg", "b.png"]
    assert data.load(1).mode == "RGB"
    assert not data.labeled
    assert not data.subset([1]).labeled


@pytest.mark.parametrize("deep", [False, True])
def test_files_of_other_formats_are_counted(
    deep: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image(tmp_path / "a.png")
    for name in ("b.heic", "c.HEIC", ".hidden"):
        text(tmp_path / name, "")
    assert len(FlatImages(tmp_path, deep=deep)) == 1
    assert "skipped 2 files not of an image format, such as b.heic" in caplog.text


def test_a_single_file_is_a_set_of_one_image(tmp_path: Path) -> None:
    path = image(tmp_path / "a.png")
    assert is_flat(path)
    assert FlatImages(path).item_name(0) == str(path)


def test_folders_with_classes_and_other_files_are_not_flat(tmp_path: Path) -> None:
    assert not is_flat(tmp_path)
    assert not is_flat(tmp_path / "none")
    assert not is_flat(text(tmp_path / "list.csv", "path,label"))
    with pytest.raises(DataError, match=f"there is no image in {tmp_path}"):
        FlatImages(tmp_path)
    image(tmp_path / "stray.png")
    class_folders(tmp_path, {"a": 1})
    assert not is_flat(tmp_path)
