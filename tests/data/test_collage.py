"""CIFAR collages: what is on which tile, which classes are where, and that feeds agree."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sumpool.data import (
    CIFAR100,
    CifarCollages,
    CifarForegrounds,
    ClassBatchSampler,
    DataError,
    Preprocessing,
    dataset_splits,
    detect_format,
    open_dataset,
    open_feed,
    write_cifar_stand_in,
)
from sumpool.data.feeds.collage_feed import CollageFeed
from sumpool.data.sets.cifar_names import COARSE_NAMES, COARSE_OF_FINE, FINE_NAMES
from sumpool.data.synthetic.collage import SHARED, SPLITS, TILE, join_tiles, sub_classes

WHOLE = Preprocessing(resize=64, crop=64, mean=(0.5,) * 3, std=(0.25,) * 3, augment="none")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cifar")
    return write_cifar_stand_in(folder, train_per_class=4, test_per_class=3)


def collages(root: Path, split: str, **options: int) -> CifarCollages:
    return CifarCollages(root, split, check_counts=False, **options)


def tiles_of(image: Tensor) -> Tensor:
    """The four tiles (4, 3, 32, 32) of a collage (3, 64, 64)."""
    return torch.stack([image[:, y : y + TILE, x : x + TILE] for y in (0, TILE) for x in (0, TILE)])


def fine_of(tile: Tensor, images: Tensor, labels: Tensor) -> int:
    """The sub-class of the image that ``tile`` shows."""
    found = (images == tile).flatten(1).all(1).nonzero()[:, 0]
    assert len(found), "the tile is none of the images"
    return int(labels[found[0]])


@pytest.mark.parametrize("split", SPLITS)
def test_tiles_are_a_foreground_and_three_shared_ones_of_the_split(root: Path, split: str) -> None:
    data = collages(root, split)
    origin = CIFAR100(root, "train" if split == "train" else "test", check_counts=False)
    images = torch.from_numpy(np.ascontiguousarray(origin.pixels)).permute(0, 3, 1, 2)
    places = {"train": (0, 1), "validation": (2,), "test": (3, 4)}[split]
    for index in range(0, len(data), max(1, len(data) // 12)):
        tiles = tiles_of(data.compose(torch.tensor([index]))[0])
        for place, tile in enumerate(tiles):
            fine = fine_of(tile, images, origin.labels)
            coarse = COARSE_OF_FINE[fine]
            siblings = [it for it in range(100) if COARSE_OF_FINE[it] == coarse]
            assert siblings.index(fine) in places
            if place == int(data.foreground_tile[index]):
                assert COARSE_NAMES[coarse] == data.class_names[int(data.labels[index])]
            else:
                assert COARSE_NAMES[coarse] in SHARED


def test_every_foreground_is_shown_and_places_are_all_used(root: Path) -> None:
    data = collages(root, "train")
    assert len(data.class_names) == 16
    assert len(data) == 10 * 16 * 2 * 4
    front = data.pieces.gather(1, data.foreground_tile[:, None])[:, 0]
    assert torch.equal(front.bincount(), torch.full((16 * 2 * 4,), 10))
    assert data.foreground_tile.bincount().min() > len(data) / 6
    assert not set(SHARED) & set(data.class_names)


def test_other_splits_show_each_foreground_once(root: Path) -> None:
    assert len(collages(root, "validation")) == 16 * 1 * 3
    assert len(collages(root, "test")) == 16 * 2 * 3
    whole = collages(root, "all")
    assert len(whole) == sum(len(collages(root, split)) for split in SPLITS)
    last = collages(root, "test")
    images = whole.compose(torch.arange(len(whole) - len(last), len(whole)))
    assert torch.equal(images, last.compose(torch.arange(len(last))))


def test_collages_depend_on_the_seed_alone(root: Path) -> None:
    one, again, other = (collages(root, "test", seed=seed) for seed in (0, 0, 1))
    every = torch.arange(len(one))
    assert torch.equal(one.compose(every), again.compose(every))
    assert not torch.equal(one.compose(every), other.compose(every))
    assert torch.equal(one.labels, other.labels)


def test_more_draws_add_to_fewer(root: Path) -> None:
    few, many = collages(root, "train", draws=2), collages(root, "train", draws=5)
    assert torch.equal(many.pieces[: len(few)], few.pieces)


def test_a_foreground_is_the_tile_of_its_collage(root: Path) -> None:
    whole = collages(root, "test")
    alone = CifarForegrounds(root, "test", check_counts=False)
    every = torch.arange(len(whole))
    tiles = torch.stack([tiles_of(image) for image in whole.compose(every)])
    assert torch.equal(alone.compose(every), tiles[every, whole.foreground_tile])
    assert alone.load(0).size == (TILE, TILE)
    assert len(CifarForegrounds(root, "train", check_counts=False)) == 16 * 2 * 4


def test_tiles_are_joined_row_by_row() -> None:
    tiles = torch.arange(2 * 4 * 3 * 5 * 5).reshape(2, 4, 3, 5, 5)
    joined = join_tiles(tiles)
    for place in range(4):
        y, x = 5 * (place // 2), 5 * (place % 2)
        assert torch.equal(joined[:, :, y : y + 5, x : x + 5], tiles[:, place])


@pytest.mark.parametrize("kind", [CifarCollages, CifarForegrounds])
def test_a_feed_joins_what_loading_shows(root: Path, kind: type[CifarCollages]) -> None:
    data = kind(root, "test", check_counts=False)
    side = 64 if data.whole else 32
    view = Preprocessing(
        resize=side, crop=side, mean=WHOLE.mean, std=WHOLE.std, augment="none", flip=True
    )
    part = data.subset(torch.arange(len(data) - 1, 3, -1))
    for shown in (data, part):
        joined = open_feed(shown, view, cache="ram", progress=False, seed=5)
        loaded = open_feed(shown, view, cache="none", workers=0, seed=5)
        assert isinstance(joined, CollageFeed)
        for one, two in zip(joined.test_batches(), loaded.test_batches(), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        sampler = ClassBatchSampler(shown.labels, 8, 2, seed=1)
        first, second = (next(it.train_batches(sampler, start=7)) for it in (joined, loaded))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_other_views_of_collages_are_cut_as_of_any_image(root: Path) -> None:
    data = collages(root, "validation")
    cropped = Preprocessing(resize=64, crop=48, mean=WHOLE.mean, std=WHOLE.std)
    feed = open_feed(data, cropped, cache="ram", progress=False)
    assert not isinstance(feed, CollageFeed)
    with pytest.raises(ValueError, match="shown whole"):
        CollageFeed(data, cropped, torch.device("cpu"), 0)


def test_the_catalogue_opens_collages_and_never_takes_a_folder_for_them(root: Path) -> None:
    assert detect_format(root) == "cifar100"
    assert dataset_splits(root, "cifar-collage") == (*SPLITS, "all")
    opened = open_dataset(root, "cifar-foreground", "test", check_counts=False)
    assert isinstance(opened, CifarForegrounds)


def test_items_are_named_after_their_foreground(root: Path) -> None:
    data = collages(root, "test")
    assert data.item_name(3).startswith(f"{root}/test[")
    assert data.item_name(3).endswith("collage 3")


def test_bad_arguments_are_named(root: Path) -> None:
    with pytest.raises(ValueError, match=r"split must be one of .*'validation'.* got 'val'"):
        collages(root, "val")
    with pytest.raises(ValueError, match="draws must be None or at least 1, got 0"):
        collages(root, "test", draws=0)
    with pytest.raises(DataError, match="must have 10,000 images"):
        CifarCollages(root, "test")
    with pytest.raises(DataError, match="must have 5 sub-classes, found 1"):
        sub_classes(np.arange(3), "train")


def test_sub_classes_are_shared_out_two_one_two() -> None:
    parts = [sub_classes(np.array(COARSE_OF_FINE), split) for split in SPLITS]
    for coarse in range(20):
        found = [fine for part in parts for fine in part[coarse]]
        assert sorted(found) == [it for it in range(100) if COARSE_OF_FINE[it] == coarse]
        assert [len(part[coarse]) for part in parts] == [2, 1, 2]
        assert [FINE_NAMES[it] for it in found] == sorted(FINE_NAMES[it] for it in found)


def test_the_real_data_has_the_published_size() -> None:
    home = os.environ.get("SUMPOOL_DATA")
    if home is None or not (Path(home) / "cifar-100-python").is_dir():
        pytest.skip("needs cifar-100-python in $SUMPOOL_DATA")
    assert len(CifarCollages(home, "train")) == 160_000
    assert len(CifarCollages(home, "validation")) == 1_600
    assert len(CifarCollages(home, "test")) == 3_200
