"""Data sets are opened by name, or recognised by their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.miniatures import (
    FASHION_LABELS,
    cars,
    cifar10,
    cifar100,
    class_folders,
    cub,
    idx,
    image,
    inshop,
    mnist,
    parquet,
    sop,
    text,
)
from sumpool.data import (
    DATASETS,
    DataError,
    ImageDataset,
    dataset_splits,
    detect_format,
    open_dataset,
)


def table(root: Path) -> None:
    image(root / "images" / "1.png")
    text(root / "list.csv", "path,label,split", "images/1.png,a,dev")


def splits(root: Path) -> None:
    class_folders(root / "train", {"a": 2})
    class_folders(root / "val", {"b": 1})


CASES: dict[str, tuple[str, Callable[[Path], Any], tuple[str, ...]]] = {
    "cub": ("cub", cub, ("train", "test")),
    "cars": ("cars196", cars, ("train", "test")),
    "sop": ("sop", sop, ("train", "test")),
    "inshop": ("inshop", inshop, ("train", "query", "gallery")),
    "cifar10": ("cifar10", cifar10, ("train", "test")),
    "cifar100": ("cifar100", cifar100, ("train", "test")),
    "mnist": ("mnist", mnist, ("train", "test")),
    "mnist.gz": ("mnist", lambda root: mnist(root, ending=".gz"), ("train", "test")),
    "fashion": ("fashion-mnist", lambda root: mnist(root, FASHION_LABELS), ("train", "test")),
    "folder": ("folder", lambda root: class_folders(root, {"a": 1, "b": 1}), ()),
    "splits": ("folder", splits, ("train", "val")),
    "csv": ("csv", table, ("dev",)),
    "parquet": ("parquet", parquet, ()),
}
UNCOUNTED = ("folder", "csv", "parquet", "glyphs")


@pytest.mark.parametrize("case", CASES)
def test_formats_are_recognized_and_all_their_splits_open(tmp_path: Path, case: str) -> None:
    name, build, parts = CASES[case]
    build(tmp_path)
    assert detect_format(tmp_path) == name
    assert dataset_splits(tmp_path) == (*parts, "all")
    options = {} if name in UNCOUNTED else {"check_counts": False}
    for split in dataset_splits(str(tmp_path), name):
        data = open_dataset(tmp_path, split=split, **options)
        assert type(data) is DATASETS[name]
        assert len(data)
        assert data.load(0).mode == "RGB"
        assert "/" in data.item_name(0)
    everything = open_dataset(tmp_path, **options)
    assert len(everything) >= len(data)


def test_the_catalog_has_every_data_set() -> None:
    assert list(DATASETS) == [
        "cub",
        "cars196",
        "sop",
        "inshop",
        "cifar10",
        "cifar100",
        "mnist",
        "fashion-mnist",
        "cifar-collage",
        "cifar-foreground",
        "cub-clutter",
        "folder",
        "csv",
        "parquet",
        "glyphs",
    ]
    assert all(issubclass(cls, ImageDataset) for cls in DATASETS.values())


def test_glyphs_have_no_root() -> None:
    data = open_dataset(None, "glyphs", "test", images_per_class=1)
    assert type(data) is DATASETS["glyphs"]
    assert dataset_splits(None, "glyphs") == ("train", "validation", "test", "all")
    with pytest.raises(ValueError, match="root must be a path unless format is 'glyphs', got None"):
        open_dataset(None)


def test_transforms_and_options_reach_the_data_set(tmp_path: Path) -> None:
    cifar100(tmp_path)
    data = open_dataset(
        tmp_path,
        "cifar100",
        "train",
        transform=lambda it: it.size,
        target_transform=lambda it: -it,
        labels="coarse",
        check_counts=False,
    )
    assert data[2] == ((32, 32), -1)
    with pytest.raises(TypeError, match="color"):
        open_dataset(tmp_path, check_counts=False, color=True)


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"format must be 'auto' or one of \['cub', .*got 'birds'"):
        open_dataset(tmp_path, "birds")


def test_several_data_sets_in_one_folder_are_named(tmp_path: Path) -> None:
    cub(tmp_path)
    cifar100(tmp_path)
    with pytest.raises(DataError, match=r"holds cub and cifar100: give format, or the folder of"):
        detect_format(tmp_path)
    assert detect_format(tmp_path / "CUB_200_2011") == "cub"
    assert len(open_dataset(tmp_path, "cub", check_counts=False)) == 8


def test_folders_called_as_the_files_of_cifar_are_folders(tmp_path: Path) -> None:
    for split in ("train", "test", "meta"):
        class_folders(tmp_path / split, {"a": 1})
    assert detect_format(tmp_path) == "folder"


def test_a_table_of_other_columns_is_none(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 1})
    text(tmp_path / "notes.csv", "weight,height", "1,2")
    assert detect_format(tmp_path) == "folder"
    (tmp_path / "notes.csv").write_bytes(b"\xff\xfe\x00")
    assert detect_format(tmp_path) == "folder"


def test_files_named_as_those_of_mnist_need_a_name(tmp_path: Path) -> None:
    mnist(tmp_path)
    idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(10, dtype=np.uint8))
    with pytest.raises(DataError, match="has files named as MNIST's, but neither its labels nor"):
        detect_format(tmp_path)
    assert len(open_dataset(tmp_path, "mnist", check_counts=False)) == 13


def test_what_holds_no_data_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"{tmp_path} holds no data set: wanted class folders, .*sop"
    ):
        detect_format(tmp_path)
    text(tmp_path / "a.heic", "")
    with pytest.raises(DataError, match=r"files such as a\.heic, which is in no known image form"):
        detect_format(tmp_path)
    file = text(tmp_path / "x.txt", "hello")
    with pytest.raises(DataError, match=r"x\.txt is a file but no CSV"):
        detect_format(file)
    with pytest.raises(DataError, match=r"none does not exist"):
        open_dataset(tmp_path / "none")
