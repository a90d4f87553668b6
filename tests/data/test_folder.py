"""A folder of class folders, with splits or without."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from data.miniatures import class_folders, image, text
from sumpool.data import DataError, ImageFolder, dataset_splits


def relative(data: ImageFolder) -> list[str]:
    return [str(Path(data.item_name(it)).relative_to(data.folder)) for it in range(len(data))]


def test_folders_are_classes_in_order(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"b": 2, "a": 1, "c d é": 1}))
    assert data.class_names == ("a", "b", "c d é")
    assert data.labels.tolist() == [0, 1, 1, 2]
    assert relative(data) == ["a/0.png", "b/0.png", "b/1.png", "c d é/0.png"]
    assert data[3][1] == 2
    assert data.load(3).mode == "RGB"


def test_images_may_lie_deeper(tmp_path: Path) -> None:
    for path in ("a/x/2.png", "a/x/y/1.JPG", "a/z.webp", "a/x-1/3.png"):
        image(tmp_path / path)
    data = ImageFolder(tmp_path)
    assert relative(data) == ["a/x/2.png", "a/x/y/1.JPG", "a/x-1/3.png", "a/z.webp"]
    assert data.labels.tolist() == [0] * 4


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 1})
    for path in ("a/.hidden.png", "a/.cache/1.png", ".git/1.png"):
        image(tmp_path / path)
    text(tmp_path / "a" / "notes.txt", "x")
    text(tmp_path / "README.md", "x")
    assert relative(ImageFolder(tmp_path)) == ["a/0.png"]


def test_empty_class_folders_and_stray_files_are_skipped_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class_folders(tmp_path, {"a": 1, "c": 1})
    text(tmp_path / "b" / "notes.txt", "x")
    for name in ("1.png", "2.png"):
        image(tmp_path / name)
    with caplog.at_level(logging.WARNING):
        data = ImageFolder(tmp_path)
    assert relative(data) == ["a/0.png", "c/0.png"]
    assert [data.class_names[it] for it in data.labels.tolist()] == ["a", "c"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: skipped 1 class folder without images: b",
        f"{tmp_path}: skipped 2 images outside class folders, such as 1.png",
        f"{tmp_path}: skipped 1 file not of an image format: b/notes.txt",
    ]


def test_class_folders_without_any_image_are_an_error(tmp_path: Path) -> None:
    text(tmp_path / "b" / "notes.txt", "x")
    with pytest.raises(DataError, match=rf"there is no image in the class folders of {tmp_path}"):
        ImageFolder(tmp_path)


def test_a_root_without_class_folders_is_named(tmp_path: Path) -> None:
    image(tmp_path / "1.png")
    with pytest.raises(DataError, match=rf"{tmp_path} has no class folders"):
        ImageFolder(tmp_path)
    with pytest.raises(DataError, match=r"none does not exist"):
        ImageFolder(tmp_path / "none")
    with pytest.raises(DataError, match=r"cannot list the folder .*1\.png: Not a directory"):
        ImageFolder(tmp_path / "1.png")


def test_splits_are_chosen_and_share_their_labels(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"b": 2, "d": 1})
    class_folders(tmp_path / "test", {"a": 1, "d": 2})
    train, test, both = (ImageFolder(tmp_path, split) for split in ("train", "test", "all"))
    assert train.class_names == test.class_names == both.class_names == ("a", "b", "d")
    assert train.labels.tolist() == [1, 1, 2]
    assert test.labels.tolist() == [0, 2, 2]
    assert both.labels.tolist() == [1, 1, 2, 0, 2, 2]
    assert relative(test) == ["test/a/0.png", "test/d/0.png", "test/d/1.png"]
    assert test.load(2).mode == "RGB"


@pytest.mark.parametrize("names", [("train", "val"), ("train", "validation", "test"), ("train",)])
def test_splits_have_the_usual_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        class_folders(tmp_path / name, {"a": 1, "b": 1})
    assert len(ImageFolder(tmp_path)) == 2 * len(names)
    for name in names:
        assert len(ImageFolder(tmp_path, name)) == 2
    accepted = ", ".join(repr(name) for name in (*names, "all"))
    with pytest.raises(ValueError, match=rf"split must be one of \({accepted}\), got 'dev'"):
        ImageFolder(tmp_path, "dev")


def test_split_folders_may_be_capitalized(tmp_path: Path) -> None:
    class_folders(tmp_path / "Train", {"a": 1, "b": 1})
    class_folders(tmp_path / "TEST", {"c": 2})
    assert dataset_splits(tmp_path) == ("train", "test", "all")
    assert relative(ImageFolder(tmp_path, "test")) == ["TEST/c/0.png", "TEST/c/1.png"]
    assert len(ImageFolder(tmp_path)) == 4


def test_only_the_split_that_is_read_must_have_images(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"a": 1})
    (tmp_path / "test" / "b").mkdir(parents=True)
    assert ImageFolder(tmp_path, "train").class_names == ("a", "b")
    assert len(ImageFolder(tmp_path)) == 1
    with pytest.raises(DataError, match="there is no image in the class folders"):
        ImageFolder(tmp_path, "test")


def test_folders_without_class_folders_are_classes_whatever_their_name(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"train": 1, "test": 2}))
    assert data.class_names == ("test", "train")
    with pytest.raises(ValueError, match=r"split must be one of \('all',\), got 'train'"):
        ImageFolder(tmp_path, "train")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    image(tmp_path / "train" / "steam" / "1.png")
    image(tmp_path / "bus" / "1.png")
    assert ImageFolder(tmp_path).class_names == ("bus", "train")
    (tmp_path / "bus" / "1.png").unlink()
    image(tmp_path / "bus" / "red" / "1.png")
    with pytest.raises(DataError, match="a class may not be named train"):  # as far as one can tell
        ImageFolder(tmp_path)


def test_a_class_may_be_called_train_where_classes_have_folders(tmp_path: Path) -> None:
    for name in ("Bus", "Plane", "Train"):
        class_folders(tmp_path / name, {"2020": 1, "2021": 1})
    assert dataset_splits(tmp_path, "folder") == ("all",)


def test_an_empty_folder_is_no_split(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    class_folders(tmp_path / "Train", {"a": 1, "b": 1})
    class_folders(tmp_path / "test", {"c": 1, "d": 1})
    assert dataset_splits(tmp_path, "folder") == ("train", "test", "all")


def test_one_split_stays_a_split_beside_folders_that_are_no_classes(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"a": 1, "b": 1})
    (tmp_path / "annotations").mkdir()
    assert ImageFolder(tmp_path).class_names == ("a", "b")
    class_folders(tmp_path / "valid", {"a": 1})
    with pytest.raises(DataError, match=r"has the splits train and beside them the folder valid"):
        ImageFolder(tmp_path)


def test_splits_beside_classes_are_refused(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"a": 1})
    class_folders(tmp_path / "test", {"a": 1})
    (tmp_path / "empty").mkdir()
    assert len(ImageFolder(tmp_path)) == 2
    class_folders(tmp_path, {"extra": 1})
    with pytest.raises(DataError, match=r"the splits train, test and beside them the folder extra"):
        ImageFolder(tmp_path)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    class_folders(tmp_path / "elsewhere", {"x": 2})
    root = class_folders(tmp_path / "root", {"a": 1})
    (root / "b").symlink_to(tmp_path / "elsewhere" / "x")
    assert ImageFolder(root).labels.tolist() == [0, 1, 1]
    (root / "a" / "again").symlink_to(root / "a")
    with pytest.raises(DataError, match=r"a/again is a link to a folder that it lies in"):
        ImageFolder(root)


def test_names_that_are_not_in_utf_8_are_refused(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 1})
    os.rename(bytes(tmp_path / "a" / "0.png"), os.fsencode(tmp_path) + b"/a/caf\xe9.png")
    with pytest.raises(DataError, match=r"the name a/caf\\xe9\.png is not in UTF-8: rename"):
        ImageFolder(tmp_path)
