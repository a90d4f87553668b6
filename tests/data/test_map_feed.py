"""Stored feature maps: computed once, shared, and those of the network to half precision."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from data.pictures import VIEWS, Pictures
from sumpool.data import BrokenImageError, CacheMemoryError, DataError, open_feed, open_map_feed
from sumpool.data.feeds import map_build
from sumpool.data.feeds.map_feed import MapFeed
from sumpool.data.sampler import ClassBatchSampler

LABELS = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]


class Network:
    """Averages 8 × 8 pixels; counts the images it has seen after a blank one."""

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.seen, self._fail_at, self._error = -1, fail_at, error

    def __call__(self, images: Tensor) -> Tensor:
        if self._error is not None and self._fail_at == self.seen:
            raise self._error
        self.seen += len(images)
        return torch.nn.functional.avg_pool2d(images, 8)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., MapFeed]:
    """Opens a feed of maps that are kept in one folder."""

    def open_one(network: Any = None, dataset: Any = None, **options: Any) -> MapFeed:
        return open_map_feed(
            Pictures(LABELS) if dataset is None else dataset,
            options.pop("preprocessing", VIEWS),
            network or Network(),
            **{"identity": "pool", "cache_dir": tmp_path, "progress": False, **options},
        )

    return open_one


def maps_of(feed: MapFeed) -> Tensor:
    return torch.cat([batch.images for batch in feed.test_batches()])


def steps_of(feed: MapFeed, start: int = 0, count: int = 4) -> list[Tensor]:
    sampler = ClassBatchSampler(LABELS, 3, 2)
    return [batch.images for batch in islice(feed.train_batches(sampler, start), count)]


def test_maps_are_what_the_network_makes_of_central_views(opened: Callable[..., MapFeed]) -> None:
    (batch,) = open_feed(Pictures(LABELS), VIEWS, workers=0).test_batches([3, 0])
    (found,) = opened().test_batches([3, 0])
    assert torch.equal(found.images, Network()(batch.images).half().float())
    assert torch.equal(found.labels, batch.labels)
    assert torch.equal(found.indices, batch.indices)


def test_they_are_computed_once_for_all_subsets_seeds_and_numbers_of_views(
    opened: Callable[..., MapFeed],
) -> None:
    first, second, third = Network(), Network(), Network()
    pictures = Pictures(LABELS)
    opened(first, pictures.subset([1, 4, 5]), views=2)
    assert first.seen == 6
    whole = opened(second, pictures, views=3, seed=5)
    assert second.seen == 36 - 6
    again = opened(third, pictures.subset([5, 9]), views=2, seed=7)
    assert third.seen == 0
    assert torch.equal(maps_of(again), maps_of(whole)[[5, 9]])


def test_a_random_view_does_not_depend_on_what_else_is_computed(
    opened: Callable[..., MapFeed], tmp_path: Path
) -> None:
    alone = opened(dataset=Pictures(LABELS).subset([4]), views=3, cache_dir=tmp_path / "alone")
    whole = opened(views=3)
    for one, other in zip(alone._maps, whole._maps, strict=True):
        assert torch.equal(one[4], other[4])
    assert len({float(view[4].sum()) for view in whole._maps}) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": "other weights"},
        {"preprocessing": replace(VIEWS, crop=32)},
        {"preprocessing": replace(VIEWS, mean=(0, 0, 0))},
        {"dataset": Pictures(LABELS, seed=1)},
    ],
)
def test_other_maps_are_other_files(opened: Callable[..., MapFeed], changes: Any) -> None:
    network = Network()
    opened()
    opened(network, **changes)
    assert network.seen == 12


def test_only_random_views_depend_on_the_augmentation(opened: Callable[..., MapFeed]) -> None:
    network = Network()
    opened(views=2)
    opened(network, views=2, preprocessing=replace(VIEWS, flip=False))
    assert network.seen == 12


def test_random_views_of_another_size_are_refused(opened: Callable[..., MapFeed]) -> None:
    with pytest.raises(ValueError, match=f"train_crop must be None or crop, {VIEWS.crop}, got 24"):
        opened(preprocessing=replace(VIEWS, train_crop=24))


def test_a_step_shows_the_same_views_whenever_it_is_asked_for(
    opened: Callable[..., MapFeed],
) -> None:
    feed = opened(views=4)
    steps = steps_of(feed)
    assert all(map(torch.equal, steps[2:], steps_of(feed, start=2, count=2)))
    assert not all(map(torch.equal, steps, steps_of(opened(views=4, seed=1))))
    assert not all(map(torch.equal, steps, steps_of(opened(views=1))))


def test_an_interrupted_computation_continues(
    opened: Callable[..., MapFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_build, "_BATCH", 4)
    with pytest.raises(KeyboardInterrupt):
        opened(Network(8, KeyboardInterrupt()))
    network = Network()
    found = maps_of(opened(network))
    assert network.seen == 4
    assert torch.equal(found, maps_of(opened(identity="pool again")))


@pytest.mark.parametrize("ending", ["maps", "rows"])
def test_damaged_files_are_computed_again(
    opened: Callable[..., MapFeed], tmp_path: Path, ending: str
) -> None:
    before = maps_of(opened())
    (path,) = tmp_path.glob(f"*.{ending}")
    path.write_bytes(path.read_bytes()[:-1])
    network = Network()
    with pytest.warns(UserWarning, match="is damaged; computing it again"):
        feed = opened(network)
    assert network.seen == 12
    assert torch.equal(maps_of(feed), before)


def test_damaged_maps_alone_are_computed_again(
    opened: Callable[..., MapFeed], tmp_path: Path
) -> None:
    expected = maps_of(opened())
    (path,) = tmp_path.glob("*.maps")
    size = path.stat().st_size // len(LABELS)
    damaged = bytearray(path.read_bytes())
    for place in (2 * size, 8 * size - 1):
        damaged[place] ^= 16
    path.write_bytes(damaged)
    network = Network()
    with pytest.warns(UserWarning, match="is damaged; computing 2 images again"):
        feed = opened(network)
    assert network.seen == 2
    assert torch.equal(maps_of(feed), expected)
    again = Network()
    opened(again)
    assert again.seen == 0
    (tmp_path / path.name).with_suffix(".sums").unlink()  # as in an earlier version
    assert torch.equal(maps_of(opened(again)), expected)
    assert again.seen <= 1  # a blank image tells the shape


def test_all_broken_images_are_named_and_the_others_are_kept(
    opened: Callable[..., MapFeed],
) -> None:
    with pytest.raises(BrokenImageError, match=r"cannot read 2 images: .*, "):
        opened(dataset=Pictures(LABELS, broken=[2, 7]))
    network = Network()
    opened(network, Pictures(LABELS, broken=[2, 7]).subset([0, 1, 3]))
    assert network.seen == 0


def test_features_that_half_precision_does_not_hold_are_refused(
    opened: Callable[..., MapFeed],
) -> None:
    with pytest.raises(DataError, match=r"the features of .* are not finite in float16"):
        opened(lambda images: 1e6 * images)


def test_a_full_disk_is_found_before_anything_is_computed(
    opened: Callable[..., MapFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    network = Network()
    with pytest.raises(CacheMemoryError, match=r"feature maps need 1,800 bytes .* of disk in "):
        opened(network)
    assert network.seen == 0


def test_without_a_folder_maps_go_to_the_users_cache(
    opened: Callable[..., MapFeed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    opened(cache_dir=None)
    assert list((tmp_path / "caches" / "sumpool").glob("*.maps"))
