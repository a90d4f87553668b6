"""Random erasing: what is blanked in training views, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sumpool.data import Batch, ClassBatchSampler, ImageDataset, Preprocessing, open_feed
from sumpool.data.feeds.erasing import AREA, ErasingFeed


class Grays(ImageDataset):
    def load(self, index: int) -> Image.Image:
        return Image.new("RGB", (40, 40), (200, 100, index))

    def item_name(self, index: int) -> str:
        return str(index)


@pytest.fixture
def feed() -> Any:
    images = Grays([0] * 8 + [1] * 8, ["a", "b"])
    view = Preprocessing(resize=None, crop=40, augment="none", flip=False)
    return open_feed(images, view, cache="ram", progress=False, seed=5)


def first_batches(feed: Any, rank: int = 0, size: int = 1, start: int = 0) -> list[Batch]:
    sampler = ClassBatchSampler(feed.dataset.labels, 2, 4, rank=rank, world_size=size)
    return list(islice(feed.train_batches(sampler, start), 20))


def blanked(batch: Batch) -> Tensor:
    return (batch.images == 0).all(1)


def test_rectangles_of_the_published_size_are_blanked_in_that_share_of_views(feed: Any) -> None:
    batches = first_batches(ErasingFeed(feed, 0.5))
    masks = torch.cat([blanked(batch) for batch in batches])  # (160, 40, 40)
    erased = masks.any(2).any(1)
    assert 0.35 < erased.float().mean() < 0.65
    for mask in masks[erased]:
        rows, columns = mask.any(1), mask.any(0)
        assert mask.equal(rows[:, None] & columns)
        assert AREA[0] * 0.8 < mask.float().mean() < AREA[1] * 1.1
    whole = torch.cat([batch.images for batch in first_batches(feed)])
    kept = torch.cat([batch.images for batch in batches])
    assert kept.equal(torch.where(masks[:, None], 0.0, whole))


def test_no_probability_erases_nothing_and_certainty_everything(feed: Any) -> None:
    for probability in (0.0, 1.0):
        batches = first_batches(ErasingFeed(feed, probability))
        found = torch.cat([blanked(batch).flatten(1).any(1) for batch in batches])
        assert found.float().mean() == probability


def test_what_is_erased_depends_on_the_step_and_the_position_alone(feed: Any) -> None:
    erasing = ErasingFeed(feed, 0.5)
    straight = first_batches(erasing)
    later = first_batches(erasing, start=7)
    assert later[0].images.equal(straight[7].images)
    halves = [first_batches(erasing, rank, 2)[3].images for rank in (0, 1)]
    assert torch.cat(halves).equal(straight[3].images)


def test_test_views_stay_whole_and_the_feed_is_closed_with_the_iterator(feed: Any) -> None:
    erasing = ErasingFeed(feed, 1.0)
    (whole,) = feed.test_batches(batch_size=16)
    (found,) = erasing.test_batches(batch_size=16)
    assert found.images.equal(whole.images)
    closed = []

    def endless(sampler: Any, start: int = 0) -> Iterator[Batch]:
        try:
            while True:
                yield Batch(torch.ones(8, 3, 4, 4), torch.zeros(8), torch.zeros(8))
        finally:
            closed.append(True)

    feed.train_batches = endless
    sampler = ClassBatchSampler(feed.dataset.labels, 2, 4)
    batches: Any = erasing.train_batches(sampler)
    next(batches)
    batches.close()
    assert closed == [True]


@pytest.mark.parametrize("probability", [-0.1, 1.1, np.nan])
def test_a_share_outside_of_zero_to_one_is_refused(feed: Any, probability: float) -> None:
    with pytest.raises(ValueError, match=r"probability must lie in \[0, 1\]"):
        ErasingFeed(feed, probability)
