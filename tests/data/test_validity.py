"""Classes that are too small and images that cannot be read are found and named."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.miniatures import cifar100, class_folders, cub
from data.pictures import Pictures
from sumpool.data import (
    CIFAR100,
    CUB200,
    BrokenImageError,
    CifarCollages,
    CubClutter,
    DataError,
    GlyphCollages,
    ImageFolder,
    check_class_sizes,
    check_images,
    find_broken,
)
from sumpool.data.feeds import threads


@given(st.lists(st.integers(-5, 5), max_size=30), st.integers(1, 4))
def test_small_classes_and_only_those_are_errors(labels: list[int], minimum: int) -> None:
    small = sorted({it for it in labels if labels.count(it) < minimum})
    if not small:
        check_class_sizes(labels, minimum)
        return
    with pytest.raises(DataError, match=rf"^class {small[0]} has {labels.count(small[0])} image"):
        check_class_sizes(torch.tensor(labels), minimum)


def test_a_class_with_one_image_is_named_with_its_file(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 2, "b": 1, "c": 3}))
    file = tmp_path / "b" / "0.png"
    match = rf"^the class 'b' has 1 image, at least 2 are needed: {file}$"
    with pytest.raises(DataError, match=match):
        check_class_sizes(data)
    check_class_sizes(data.subset([0, 1, 3, 4]))  # a class without images is none


def test_files_and_classes_are_counted_where_there_are_many(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 4, "b": 2, "c": 1, "d": 8}))
    match = r"'a' has 4 images, .* 5 .*/2\.png and 1 more \(and 2 more classes"
    with pytest.raises(DataError, match=match):
        check_class_sizes(data, 5)


def test_good_and_broken_images_are_told_apart(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 3, "b": 3}))
    (tmp_path / "a" / "1.png").write_bytes(b"no image")
    sound = (tmp_path / "b" / "2.png").read_bytes()
    (tmp_path / "b" / "2.png").write_bytes(sound[: len(sound) // 2])
    for workers in (1, 4):
        good, broken = find_broken(data, progress=False, workers=workers)
        assert good.tolist() == [0, 2, 3, 4]
        assert [name for name, _ in broken] == [data.item_name(1), data.item_name(5)]
        assert "none of the formats" in broken[0][1]
        assert all(reason and name not in reason for name, reason in broken)
    assert find_broken(data.subset(good), progress=False)[1] == []


def test_the_check_shows_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 3}))
    find_broken(data, progress=False)
    assert capsys.readouterr().err == ""
    find_broken(data)
    assert "checking images" in capsys.readouterr().err
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        find_broken(data, workers=0)


def test_threads_are_as_many_as_there_are_usable_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5}, raising=False)
    asked = []

    class Noted(ThreadPoolExecutor):
        def __init__(self, workers: int, **options: str) -> None:
            asked.append(workers)
            super().__init__(workers, **options)

    monkeypatch.setattr(threads, "ThreadPoolExecutor", Noted)
    find_broken(ImageFolder(class_folders(tmp_path, {"a": 3})), progress=False)
    assert asked == [2]


def test_other_errors_are_not_taken_for_broken_images(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 3}))
    data.load = lambda index: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        find_broken(data, progress=False)


def test_all_parts_are_checked_before_broken_images_are_counted(tmp_path: Path) -> None:
    parts = {name: ImageFolder(class_folders(tmp_path / name, {"x": 4})) for name in "abc"}
    for place in ("a/x/1.png", "a/x/2.png", "c/x/0.png", "c/x/3.png"):
        (tmp_path / place).write_bytes(b"")
    with pytest.raises(
        BrokenImageError, match=r"cannot read 4 images: .*a/x/1\.png .* and 1 more$"
    ):
        check_images(parts, skip_broken=False, progress=False)
    kept, broken = check_images(parts, skip_broken=True, progress=False)
    assert {name: len(part) for name, part in kept.items()} == {"a": 2, "b": 4, "c": 2}
    assert [name for name, _ in broken] == [
        str(tmp_path / place) for place in ("a/x/1.png", "a/x/2.png", "c/x/0.png", "c/x/3.png")
    ]


def test_a_part_without_a_readable_image_is_an_error(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 2}))
    for name in ("0.png", "1.png"):
        (tmp_path / "a" / name).write_bytes(b"")
    with pytest.raises(BrokenImageError, match="no image is left: cannot read 2 images"):
        check_images({"all": data}, skip_broken=True, progress=False)


def test_images_that_are_no_files_are_checked_too() -> None:
    pictures = Pictures([0, 0, 1, 1], broken=[1])
    for data in (pictures, pictures.subset([3, 1, 0])):
        with pytest.raises(BrokenImageError, match="picture 1: it is torn"):
            check_images({"all": data}, skip_broken=False, progress=False)
        kept, broken = check_images({"all": data}, skip_broken=True, progress=False)
        assert len(kept["all"]) == len(data) - 1
        assert broken == (("album/picture 1", "it is torn"),)


def test_pixels_in_memory_need_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    glyphs = GlyphCollages(images_per_class=1)
    pictures = CIFAR100(cifar100(tmp_path)[0], check_counts=False)
    for data in (glyphs, glyphs.subset([0, 1]), pictures):
        monkeypatch.setattr(data, "load", None)
        assert check_images({"all": data}, skip_broken=False) == ({"all": data}, ())
    assert CifarCollages.in_memory


def test_a_broken_photo_in_the_clutter_is_named(tmp_path: Path) -> None:
    root = cub(tmp_path, [3] * 20)
    whole = CubClutter(root, "all", check_counts=False)
    tile = int(whole.tiles[0, 0])
    photo = CUB200(root, check_counts=False).item_name(tile)
    Path(photo).write_bytes(b"")
    kept, broken = check_images({"all": whole}, skip_broken=True, progress=False)
    assert len(kept["all"]) == int((whole.tiles != tile).all(1).sum()) < len(whole)
    assert broken[0][0] == whole.item_name(0)
    assert broken[0][1].startswith(f"cannot read the image {photo}: ")
