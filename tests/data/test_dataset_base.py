"""What every data set does, whatever its images come from."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from data.miniatures import class_folders
from sumpool.data import BrokenImageError, ImageDataset, ImageFolder
from sumpool.data.base import ImageSubset

COLORS = ("red", "green", "blue", "white", "black")


class Colors(ImageDataset):
    """Five images, each of one colour."""

    def __init__(self, **options: object) -> None:
        super().__init__([0, 0, 1, 1, 1], ("warm", "cold", "unused"), **options)  # type: ignore[arg-type]

    def load(self, index: int) -> Image.Image:
        return Image.new("RGB", (2, 2), COLORS[index])

    def item_name(self, index: int) -> str:
        return COLORS[index]


def test_an_item_is_an_image_and_an_int() -> None:
    picture, label = Colors()[2]
    assert picture.mode == "RGB"
    assert picture.getpixel((0, 0)) == (0, 0, 255)
    assert type(label) is int
    assert label == 1


def test_transforms_see_image_and_label() -> None:
    data = Colors(transform=lambda it: it.size, target_transform=lambda it: it + 40)
    assert data[3] == ((2, 2), 41)
    assert isinstance(data.load(3), Image.Image)


def test_labels_are_int64_and_index_the_class_names() -> None:
    data = Colors()
    assert data.labels.dtype == torch.int64
    assert [data.class_names[it] for it in data.labels] == ["warm"] * 2 + ["cold"] * 3


def test_items_can_be_walked_through_and_counted_from_the_end() -> None:
    data = Colors()
    assert [label for _, label in data] == [0, 0, 1, 1, 1]  # type: ignore[attr-defined]
    assert data[-1][0].getpixel((0, 0)) == (0, 0, 0)
    for index in (5, -6):
        with pytest.raises(IndexError, match=rf"index must be below the 5 images, got {index}"):
            data[index]


def test_a_subset_keeps_labels_names_and_transforms() -> None:
    data = Colors(transform=lambda it: it.getpixel((0, 0)))
    some = data.subset(torch.tensor([4, 0, 4]))
    assert some.labels.tolist() == [1, 0, 1]
    assert some.class_names == data.class_names
    assert [some.item_name(it) for it in range(3)] == ["black", "red", "black"]
    assert [some[it][0] for it in range(3)] == [(0, 0, 0), (255, 0, 0), (0, 0, 0)]
    assert len(data.subset([])) == 0


def test_a_subset_of_a_subset_reads_from_the_first_data_set() -> None:
    data = Colors()
    some = data.subset([4, 3, 0]).subset([2, 0])
    assert isinstance(some, ImageSubset)
    assert some.parent is data
    assert some.indices.tolist() == [0, 4]
    assert [some.item_name(it) for it in range(2)] == ["red", "black"]


@pytest.mark.parametrize(
    ("indices", "error", "match"),
    [
        ([0, 5], IndexError, r"indices must lie in 0\.\.4, got values from 0 to 5"),
        ([-1, 2], IndexError, r"indices must lie in 0\.\.4, got values from -1 to 2"),
        ([True, False], TypeError, r"indices must be integers, got torch\.bool"),
        ([0.0], TypeError, r"indices must be integers, got torch\.float32"),
        ([[0]], ValueError, r"indices must have one dimension, got shape \(1, 1\)"),
    ],
)
def test_indices_that_are_none_are_refused(indices: list[int], error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        Colors().subset(indices)


@pytest.mark.parametrize("labels", [[0, 0, 3, 1, 1], [0, -1, 1, 1, 1]])
def test_labels_without_a_name_are_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="labels must index the 3 class_names, got values from"):
        ImageDataset.__init__(Colors(), labels, ("a", "b", "c"))


def test_a_data_set_tells_its_size() -> None:
    assert repr(Colors()) == "Colors(5 images of 2 classes)"


def test_a_data_set_can_be_sent_to_another_process(tmp_path: Path) -> None:
    data = ImageFolder(class_folders(tmp_path, {"a": 2, "b": 1})).subset([2, 0])
    sent = pickle.loads(pickle.dumps(data))
    assert sent.labels.tolist() == [1, 0]
    assert sent.item_name(0) == str(tmp_path / "b" / "0.png")


def test_an_error_from_a_worker_process_names_the_file(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 2})
    (tmp_path / "a" / "1.png").write_bytes(b"no image")
    loader = DataLoader(ImageFolder(tmp_path), batch_size=None, num_workers=1)
    with pytest.raises(BrokenImageError, match=r"a/1\.png"):
        list(loader)


def test_a_broken_image_error_keeps_its_reason_when_sent() -> None:
    error = pickle.loads(pickle.dumps(BrokenImageError("cannot read x: too short", "too short")))
    assert str(error) == "cannot read x: too short"
    assert error.reason == "too short"
    assert BrokenImageError("all there is").reason == "all there is"
