"""CUB, Cars196, SOP and In-shop: the layouts of their archives, and their published counts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from data.miniatures import CARS_FIELDS, cars, cub, inshop, number, sop, text
from sumpool.data import CUB200, Cars196, DataError, InShop, StanfordOnlineProducts, open_dataset
from sumpool.data.sets.files import missing_files
from sumpool.data.sets.matlab import read_mat
from sumpool.data.sets.published import Count

SETS: list[tuple[Callable[[Path], Path], Any]] = [
    (cub, CUB200),
    (cars, Cars196),
    (sop, StanfordOnlineProducts),
    (inshop, InShop),
]
each_set = pytest.mark.parametrize(("build", "cls"), SETS, ids=[it.__name__ for _, it in SETS])
#: The folder of the real data sets, where there is one.
REAL = Path(os.environ.get("SUMPOOL_DATA", "none"))


def names(data: Any) -> list[str]:
    return [Path(data.item_name(it)).name for it in range(len(data))]


def test_cub_trains_on_the_first_half_of_its_classes(tmp_path: Path) -> None:
    cub(tmp_path, sizes=(2, 1, 3, 2))
    train, test, both = (
        CUB200(tmp_path, split, check_counts=False) for split in ("train", "test", "all")
    )
    assert train.labels.tolist() == [0, 0, 1]
    assert test.labels.tolist() == [2, 2, 2, 3, 3]
    assert both.labels.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]
    assert (
        train.class_names == test.class_names == tuple(f"{it:03d}.Bird_{it}" for it in (1, 2, 3, 4))
    )
    assert test.item_name(3) == str(tmp_path / "CUB_200_2011/images/004.Bird_4/0.jpg")
    assert test.load(3).size == (8, 6)


def test_cub_follows_its_numbers_not_the_order_of_lines(tmp_path: Path) -> None:
    home = cub(tmp_path, sizes=(1, 1))
    text(home / "images.txt", "2 001.Bird_1/0.jpg", "1 002.Bird_2/0.jpg")
    text(home / "image_class_labels.txt", "2 1", "1 2")
    data = CUB200(home, check_counts=False)
    assert data.labels.tolist() == [1, 0]
    assert data.item_name(0).endswith("002.Bird_2/0.jpg")


def test_cars_are_read_from_the_matlab_file(tmp_path: Path) -> None:
    cars(tmp_path, labels=(3, 1, 2, 4, 1))
    train, test = (Cars196(tmp_path, split, check_counts=False) for split in ("train", "test"))
    assert names(train) == ["000002.jpg", "000003.jpg", "000005.jpg"]
    assert train.labels.tolist() == [0, 1, 0]
    assert names(test) == ["000001.jpg", "000004.jpg"]
    assert test.labels.tolist() == [2, 3]
    assert test.class_names[2] == "Car Model 3"
    assert test.load(0).mode == "RGB"


def test_the_documented_structure_of_the_cars_is_read_compressed_or_not(tmp_path: Path) -> None:
    path = cars(tmp_path) / "cars_annos.mat"
    content = scipy.io.loadmat(path)
    assert content["annotations"].shape == (1, 5)
    assert content["annotations"].dtype.names == CARS_FIELDS
    assert [content["annotations"][it][0, 0].dtype.name for it in CARS_FIELDS[1:]] == [
        *("uint8", "uint8", "uint16", "uint16", "uint8", "uint8"),
    ]
    written = {it: content[it] for it in ("annotations", "class_names")}
    for compressed in (False, True):
        scipy.io.savemat(path, written, do_compression=compressed)
        first = read_mat(path)["annotations"][0]
        expected = ("car_ims/000001.jpg", 7, 11, 853, 642, 3, 1)
        assert first == dict(zip(CARS_FIELDS, expected, strict=True))
        data = Cars196(tmp_path, "all", check_counts=False)
        assert data.labels.tolist() == [2, 0, 1, 3, 0]
        assert data.class_names[3] == "Car Model 4"


def test_sop_follows_its_two_lists(tmp_path: Path) -> None:
    sop(tmp_path)
    train, test = (
        StanfordOnlineProducts(tmp_path, split, check_counts=False) for split in ("train", "test")
    )
    assert names(train) == ["11_0.JPG", "11_1.JPG", "12_0.JPG"]
    assert train.labels.tolist() == [0, 0, 1]
    assert test.labels.tolist() == [2, 2]
    assert test.class_names == ("bicycle 1", "mug 2", "bicycle 3")


@pytest.mark.parametrize("nested", [True, False])
def test_inshop_has_queries_and_a_gallery_of_the_same_classes(tmp_path: Path, nested: bool) -> None:
    inshop(tmp_path, nested=nested)
    train, query, gallery, everything = (
        InShop(tmp_path, it, check_counts=False) for it in ("train", "query", "gallery", "all")
    )
    assert train.class_names == ("id_00000001", "id_00000003", "id_00000007")
    assert train.labels.tolist() == [2, 2]
    assert query.labels.tolist() == gallery.labels.tolist() == [0, 1]
    assert set(names(query)) == {"01_1_front.jpg"}
    assert set(names(gallery)) == {"01_2_side.jpg"}
    assert len(everything) == 6
    assert [it.load(0).size for it in (train, query, gallery)] == [(8, 6)] * 3


@each_set
def test_the_root_may_be_the_archive_or_its_parent(tmp_path: Path, build: Any, cls: Any) -> None:
    inside = cls.layout.inside[0]
    build(tmp_path if cls in (CUB200, StanfordOnlineProducts) else tmp_path / inside)
    one = cls(tmp_path, check_counts=False)
    other = cls(str(tmp_path / inside), check_counts=False)
    assert [one.item_name(it) for it in range(len(one))] == [
        other.item_name(it) for it in range(len(other))
    ]


@each_set
def test_published_counts_are_demanded(tmp_path: Path, build: Any, cls: Any) -> None:
    build(tmp_path)
    split, wanted = next(iter(cls.published.items()))
    with pytest.raises(DataError) as caught:
        cls(tmp_path)
    for part in (
        cls.layout.title,
        str(tmp_path),
        f"the split '{split}' must have {wanted}, found ",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "counts"),
    [
        (CUB200, {"train": (100, 5864), "test": (100, 5924)}),
        (Cars196, {"train": (98, 8054), "test": (98, 8131)}),
        (StanfordOnlineProducts, {"train": (11318, 59551), "test": (11316, 60502)}),
        (InShop, {"train": (3997, 25882), "query": (3985, 14218), "gallery": (3985, 12612)}),
    ],
)
def test_counts_are_those_of_the_papers(cls: Any, counts: dict[str, tuple[int, int]]) -> None:
    assert cls.published == counts


def test_the_right_counts_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cub(tmp_path, sizes=(2, 1, 3, 2))
    monkeypatch.setattr(CUB200, "published", {"train": Count(2, 3), "test": Count(2, 5)})
    assert len(CUB200(tmp_path)) == 8
    monkeypatch.setattr(CUB200, "published", {"train": Count(2, 3), "test": Count(2, 6)})
    with pytest.raises(DataError, match=r"'test' must have 6 images of 2 .*, found 5 images of 2"):
        CUB200(tmp_path, "train")  # the whole archive is checked


@each_set
@pytest.mark.parametrize("check_counts", [True, False])
def test_missing_images_are_named(tmp_path: Path, build: Any, cls: Any, check_counts: bool) -> None:
    build(tmp_path)
    data = cls(tmp_path, check_counts=False)
    gone = Path(data.item_name(1))
    gone.unlink()
    match = rf"1 of {len(data)} listed images are missing: {gone}$"
    with pytest.raises(DataError, match=match):
        cls(tmp_path, check_counts=check_counts)


def test_a_long_list_of_missing_images_is_cut(tmp_path: Path) -> None:
    home = cub(tmp_path, sizes=(9, 9))
    for path in (home / "images" / "002.Bird_2").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"9 of 18 listed images are missing: .* and 4 more") as it:
        CUB200(home, check_counts=False)
    assert str(it.value).count(".jpg") == 5


@each_set
def test_a_folder_without_the_lists_is_refused(tmp_path: Path, build: Any, cls: Any) -> None:
    with pytest.raises(DataError, match=rf"holds no {cls.layout.title}: .* lacks .*\.(txt|mat)"):
        cls(tmp_path)
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        cls(tmp_path / "nowhere")


def test_the_absent_list_is_named_where_the_others_are(tmp_path: Path) -> None:
    home = cub(tmp_path)
    (home / "classes.txt").unlink()
    with pytest.raises(DataError, match=rf"{home} lacks classes\.txt$"):
        CUB200(tmp_path)


@each_set
def test_unknown_splits_are_refused(tmp_path: Path, build: Any, cls: Any) -> None:
    build(tmp_path)
    with pytest.raises(ValueError, match=r"split must be one of \('train', .*'all'\), got 'dev'"):
        cls(tmp_path, "dev")


@pytest.mark.parametrize(
    ("file", "lines", "match"),
    [
        (
            "images.txt",
            ["1 a.jpg", "two b.jpg"],
            r"images\.txt, line 2: wanted .* int str, got 'two",
        ),
        (
            "images.txt",
            ["1 a.jpg", "2"],
            r"images\.txt, line 2: wanted the columns int str, got '2'",
        ),
        ("images.txt", ["1 a.jpg", "1 b.jpg"], r"images\.txt has a number twice"),
        ("images.txt", ["1 001.Bird_1/0.jpg"], r"images\.txt lacks image number 2"),
        ("image_class_labels.txt", ["1 1"], r"image_class_labels\.txt lacks image number 2"),
        ("image_class_labels.txt", ["1 1", "2 3"], r"number 2 is of class 3, which .*classes\.txt"),
        ("images.txt", ["1 001.Bird_1/0.jpg", "2 ../../x.jpg"], r"lists \.\./.*, which leads out"),
        ("images.txt", ["1 001.Bird_1/0.jpg", "2 /etc/x.jpg"], r"lists /etc.*, which leads out"),
    ],
)
def test_damaged_lists_are_named(tmp_path: Path, file: str, lines: list[str], match: str) -> None:
    home = cub(tmp_path, sizes=(1, 1))
    text(home / file, *lines)
    with pytest.raises(DataError, match=match):
        CUB200(home, check_counts=False)


def test_a_list_that_is_not_text_is_named(tmp_path: Path) -> None:
    home = cub(tmp_path)
    (home / "images.txt").write_bytes(b"1 \xff\xfe\n")
    with pytest.raises(DataError, match=r"images\.txt is not UTF-8"):
        CUB200(home)


def test_an_unknown_part_of_inshop_is_named(tmp_path: Path) -> None:
    text(tmp_path / "list_eval_partition.txt", "1", "names", "img/a.jpg id_1 validation")
    with pytest.raises(DataError, match=r"img/a\.jpg is in 'validation', wanted one of \['train'"):
        InShop(tmp_path)


def test_a_damaged_matlab_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cars_annos.mat"
    for content in (
        b"",
        b"no matlab" * 30,
        cars(tmp_path / "x").joinpath(path.name).read_bytes()[:300],
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read .*cars_annos\.mat: wanted annotations"):
            Cars196(tmp_path)
    scipy.io.savemat(path, {"annotations": np.zeros(3)})
    with pytest.raises(DataError, match=r"cannot read .*cars_annos\.mat"):
        Cars196(tmp_path)


def test_a_class_number_out_of_range_is_named(tmp_path: Path) -> None:
    cars(tmp_path, labels=(1, 2))
    content = scipy.io.loadmat(tmp_path / "cars_annos.mat")
    content["annotations"]["class"][0, 1] = number(3)
    scipy.io.savemat(
        tmp_path / "cars_annos.mat", {it: content[it] for it in ("annotations", "class_names")}
    )
    with pytest.raises(DataError, match=r"000002\.jpg is of class 3, classes are 1\.\.2"):
        Cars196(tmp_path)


def test_missing_files_equal_those_that_do_not_exist(tmp_path: Path) -> None:
    text(tmp_path / "a" / "1")
    text(tmp_path / "a" / "b" / "2")
    text(tmp_path / "3")
    paths = ["a/1", "a/2", "a/b", "a/b/2", "3", "4", "none/1", "3/x", "./3", str(tmp_path / "a/1")]
    expected = [it for it, path in enumerate(paths) if not (tmp_path / path).is_file()]
    assert missing_files(tmp_path, paths) == expected == [1, 2, 5, 6, 7]


@pytest.mark.skipif(
    not (REAL / "CUB_200_2011").is_dir(), reason="needs CUB_200_2011 in $SUMPOOL_DATA"
)
def test_the_real_cub_has_its_counts() -> None:
    train, test = (open_dataset(REAL, "cub", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (5864, 5924)
    assert train.load(0).mode == test.load(len(test) - 1).mode == "RGB"
