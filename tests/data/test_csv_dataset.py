"""A CSV file with a path, a label and perhaps a split in each row."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.miniatures import image, text
from sumpool.data import DataError, ImageTable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("1.png", "2.png", "sub/3.png", "comma, é.png"):
        image(tmp_path / name)
    return tmp_path


def test_rows_are_images_and_labels_class_names(folder: Path) -> None:
    path = text(folder / "x.csv", "path,label", "2.png,cat", "sub/3.png,Äffchen", "1.png,cat")
    data = ImageTable(path)
    assert data.class_names == ("cat", "Äffchen")
    assert data.labels.tolist() == [0, 1, 0]
    assert [data.item_name(it) for it in range(3)] == [
        str(folder / name) for name in ("2.png", "sub/3.png", "1.png")
    ]
    assert data.load(1).mode == "RGB"
    assert len(ImageTable(folder)) == 3


def test_paths_may_be_absolute_and_quoted(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away") / "x.csv"
    text(away, "label,path", f'"a ""b""","{folder}/comma, é.png"')
    data = ImageTable(away, allow_outside=True)
    assert data.item_name(0) == f"{folder}/comma, é.png"
    assert data.class_names == ('a "b"',)
    assert data.load(0).size == (8, 6)


@pytest.mark.parametrize("named", ["../1.png", "/etc/passwd", "sub/../../1.png", "{folder}/1.png"])
def test_paths_stay_inside_the_folder_unless_allowed(folder: Path, named: str) -> None:
    image(folder / "inner" / "a.png")
    path = text(folder / "inner/x.csv", "path,label", "a.png,a", named.format(folder=folder) + ",b")
    with pytest.raises(DataError, match=r"x\.csv, line 3: .* outside .*--allow-outside"):
        ImageTable(path)


def test_an_absolute_path_inside_the_folder_is_accepted(folder: Path) -> None:
    path = text(folder / "x.csv", "path,label", f"{folder}/sub/3.png,a", "sub/../1.png,b")
    assert len(ImageTable(path)) == 2


def test_labels_of_thousands_of_digits_sort_by_value(folder: Path) -> None:
    long = "1" * 6000
    path = text(folder / "x.csv", "path,label", f"1.png,{long}", "2.png,2", "sub/3.png,002")
    assert ImageTable(path).class_names == ("002", "2", long)


def test_the_split_column_chooses_rows(folder: Path) -> None:
    text(folder / "x.csv", "path,label,split", "1.png,b,train", "2.png,a,dev", "sub/3.png,b,dev")
    assert ImageTable(folder, "train").labels.tolist() == [1]
    assert ImageTable(folder, "dev").labels.tolist() == [0, 1]
    assert ImageTable(folder, "all").labels.tolist() == [1, 0, 1]
    assert ImageTable(folder, "train").class_names == ("a", "b")
    with pytest.raises(ValueError, match=r"one of \('dev', 'train', 'all'\), got 'test'"):
        ImageTable(folder, "test")


def test_numbers_sort_by_value_and_stay_text(folder: Path) -> None:
    path = text(folder / "x.csv", "path,label", "1.png,10", "2.png,9", "sub/3.png,16777217")
    assert ImageTable(path).class_names == ("9", "10", "16777217")
    text(path, "path,label", "1.png,10", "2.png,9", "sub/3.png,x")
    assert ImageTable(path).class_names == ("10", "9", "x")
    text(path, "path,label", "1.png,1", "2.png,01")
    assert ImageTable(path).class_names == ("01", "1")


def test_blanks_around_labels_and_splits_do_not_count(folder: Path) -> None:
    path = text(folder / "x.csv", "path, label, split", "1.png,a, dev", "2.png, a ,dev")
    table = ImageTable(path, "dev")
    assert table.class_names == ("a",)
    assert len(table) == 2


def test_a_byte_order_mark_blank_lines_and_dos_line_ends_are_fine(folder: Path) -> None:
    (folder / "x.csv").write_bytes(b"\xef\xbb\xbfpath, label\r\n1.png,a\r\n\r\n2.png,b\r\n")
    assert ImageTable(folder).class_names == ("a", "b")


def test_the_same_image_may_be_in_two_splits(folder: Path) -> None:
    text(folder / "x.csv", "path,label,split", "1.png,a,query", "1.png,a,gallery")
    assert len(ImageTable(folder)) == 2


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (["path,label", "1.png,a", "no.png,a", "nor.png,b"], r"line 3: .*no\.png and 1 more$"),
        (["path,label", "1.png,a", "sub,b"], r"line 3: there is no file .*/sub$"),
        (["path,label", "1.png,a,b"], r"line 2: wanted 2 cells \(path, label\), got 3"),
        (["path,label", "1.png"], r"line 2: wanted 2 cells \(path, label\), got 1"),
        (["path,label", "1.png,"], r"line 2: the cell label is empty"),
        (["path,label", " ,a"], r"line 2: the cell path is empty"),
        (["path,label,split", "1.png,a,"], r"line 2: the cell split is empty"),
        (["path,label,split", "1.png,a,all"], r"line 2: no split may be called 'all'"),
        (["path,label", "1.png,a", "2.png,a", "1.png,b"], r"line 4: 1\.png is in line 2 already"),
        (["path", "1.png"], r"lacks the column label: .*, got \['path'\]"),
        (["1.png,a"], r"lacks the column path: wanted a first line .*, got \['1\.png', 'a'\]"),
        (["path;label", "1.png;a"], r"lacks the column path"),
        (["path,label,weight", "1.png,a,1"], r"has the column 'weight': wanted"),
        (["path,label,path", "1.png,a,1"], r"has a column twice"),
        (["path,label"], r"has no rows"),
        ([], r"lacks the column path"),
        (["path,label", '1.png,"a'], r"after line 1: .*end of data"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, lines: list[str], match: str) -> None:
    path = text(folder / "x.csv", *lines)
    with pytest.raises(DataError, match=rf"^{path}[ ,].*{match}"):
        ImageTable(path)


def test_lines_are_counted_as_an_editor_does(folder: Path) -> None:
    path = text(folder / "x.csv", "path,label", "", '1.png,"two', 'lines"', "no.png,a")
    with pytest.raises(DataError, match=r"x\.csv, line 5: there is no file .*no\.png"):
        ImageTable(path)


def test_a_file_in_another_encoding_is_named(folder: Path) -> None:
    (folder / "x.csv").write_bytes("path,label\n1.png,a\n2.png,é\n".encode("latin1"))
    with pytest.raises(DataError, match=r"x\.csv, line 3: not UTF-8, save it as such"):
        ImageTable(folder)


def test_a_folder_must_hold_one_table(folder: Path) -> None:
    with pytest.raises(DataError, match=r"must hold one CSV file, found 0"):
        ImageTable(folder)
    text(folder / "x.csv", "path,label", "1.png,a")
    text(folder / "y.csv", "path,label", "1.png,a")
    with pytest.raises(DataError, match=r"must hold one CSV file, found 2: name the one to use"):
        ImageTable(folder)
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        ImageTable(folder / "none.csv")
