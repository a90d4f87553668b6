"""CUB with clutter: what lies where, which classes are the background, and that nothing changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from data.miniatures import cub, image
from sumpool.bench.datasets import DataSource, find_data
from sumpool.data import (
    CUB200,
    CubClutter,
    DataError,
    Preprocessing,
    dataset_splits,
    detect_format,
    open_dataset,
    open_feed,
)
from sumpool.data.synthetic.clutter import SHARE, SIDE, SPLITS, TILE
from sumpool.losses import LOSSES

#: Classes of the miniature; 9 and 19 are the background's.
CLASSES, BACKGROUND = 20, (9, 19)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two photographs a class, each of one color that no other has."""
    home = cub(tmp_path_factory.mktemp("cub"), [2] * CLASSES)
    photos = CUB200(home, check_counts=False)
    for number in range(len(photos)):
        path, size = Path(photos.item_name(number)), (40, 30) if number % 2 else (30, 50)
        image(path, color(number), size=size)  # type: ignore[arg-type]
    return home


def color(number: int) -> tuple[int, int, int]:
    return (20 + 28 * (number % 8), 20 + 40 * (number // 8), 128)


def clutter(root: Path, split: str, **options: int) -> CubClutter:
    return CubClutter(root, split, check_counts=False, **options)


def pixels(data: CubClutter, index: int) -> NDArray[np.int64]:
    return np.asarray(data.load(index)).astype(np.int64)


@pytest.mark.parametrize("split", SPLITS)
def test_the_box_shows_the_photograph_and_the_rest_its_tiles(root: Path, split: str) -> None:
    data = clutter(root, split)
    names = [CUB200(root, check_counts=False).item_name(it) for it in range(2 * CLASSES)]
    for index in range(len(data)):
        wanted = np.empty((SIDE, SIDE, 3), dtype=np.int64)
        for place, number in enumerate(data.tiles[index].tolist()):
            y, x = TILE * (place // 2), TILE * (place % 2)
            wanted[y : y + TILE, x : x + TILE] = color(number)
        top, left, height, width = data.boxes[index].tolist()
        number = names.index(data.item_name(index).removesuffix(" clutter 0"))
        wanted[top : top + height, left : left + width] = color(number)
        assert number // 2 == int(data.labels[index])
        assert np.abs(pixels(data, index) - wanted).max() <= 4  # JPEG


def test_a_photograph_covers_a_quarter_to_a_half_anywhere(root: Path) -> None:
    boxes = clutter(root, "all", views=50).boxes
    top, left, height, width = boxes.T
    shares = height * width / SIDE**2
    assert SHARE[0] <= shares.min() < 0.26
    assert 0.49 < shares.max() <= SHARE[1]
    for start, length in ((top, height), (left, width)):
        assert start.min() == 0
        assert (start + length).max() == SIDE
        assert (start + length <= SIDE).all()


def test_backgrounds_are_of_kept_classes_and_nothing_else_is(root: Path) -> None:
    labels = CUB200(root, check_counts=False).labels
    for split in (*SPLITS, "all"):
        data = clutter(root, split, views=20)
        assert set(labels[data.pool].tolist()) == set(BACKGROUND)
        assert set(data.tiles.unique().tolist()) == set(data.pool.tolist())
        assert not set(data.labels.tolist()) & set(BACKGROUND)


def test_train_and_test_share_the_pool_and_no_class(root: Path) -> None:
    train, test, whole = (clutter(root, split) for split in (*SPLITS, "all"))
    assert torch.equal(train.pool, test.pool)
    assert set(train.labels.tolist()) == set(range(9))
    assert set(test.labels.tolist()) == set(range(10, 19))
    assert len(whole) == len(train) + len(test)
    assert train.class_names == test.class_names == CUB200(root, check_counts=False).class_names


def test_an_image_depends_on_seed_photograph_and_view_alone(root: Path) -> None:
    one, again, other = (clutter(root, "test", seed=seed) for seed in (0, 0, 1))
    whole, many = clutter(root, "all"), clutter(root, "test", views=2)
    assert torch.equal(many.labels, one.labels.repeat(2))
    for index in (0, 5, len(one) - 1):
        shown = pixels(one, index)
        assert (shown == pixels(again, index)).all()
        assert (shown == pixels(whole, len(whole) - len(one) + index)).all()
        assert (shown == pixels(many, index)).all()
        assert (shown != pixels(many, len(one) + index)).any()
        assert (shown != pixels(other, index)).any()


def test_views_have_names_of_their_own_and_are_cached_as_loaded(root: Path) -> None:
    data = clutter(root, "train", views=3)
    assert len({data.item_name(it) for it in range(len(data))}) == len(data)
    view = Preprocessing(resize=SIDE, crop=227, mean=(0.5,) * 3, std=(0.25,) * 3)
    part = data.subset([40, 3, 17])
    cached = open_feed(part, view, cache="ram", progress=False)
    loaded = open_feed(part, view, cache="none", workers=0)
    (one,), (two,) = cached.test_batches(), loaded.test_batches()
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_it_is_found_by_name_and_a_folder_is_never_taken_for_it(root: Path) -> None:
    assert detect_format(root) == "cub"
    assert dataset_splits(root, "cub-clutter") == (*SPLITS, "all")
    assert isinstance(open_dataset(root, "cub-clutter", "test", check_counts=False), CubClutter)
    assert find_data("cub-clutter", root.parent) == DataSource("cub-clutter", "cub-clutter", root)
    assert LOSSES["c2"].constants("cub-clutter") == LOSSES["c2"].constants("cub")


def test_bad_arguments_are_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"split must be one of .*'test'.* got 'validation'"):
        clutter(root, "validation")
    with pytest.raises(ValueError, match="views must be at least 1, got 0"):
        clutter(root, "train", views=0)
    with pytest.raises(DataError, match="must have 5,864 images"):
        CubClutter(root)
    with pytest.raises(DataError, match="has no photograph of a class kept for the background"):
        clutter(cub(tmp_path), "train")


def test_the_real_data_has_ninety_classes_a_split() -> None:
    home = os.environ.get("SUMPOOL_DATA")
    if home is None or not (Path(home) / "CUB_200_2011").is_dir():
        pytest.skip("needs CUB_200_2011 in $SUMPOOL_DATA")
    for split in SPLITS:
        assert CubClutter(home, split).labels.unique().numel() == 90
