"""Batches of P classes × K images: what holds for every one, and in the long run."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.pictures import global_states
from sumpool.data.base import DataError
from sumpool.data.sampler import ClassBatchSampler


def labels_of(counts: list[int]) -> torch.Tensor:
    """Labels 10, 17, 24, ... with so many images each, in a mixed order."""
    labels = torch.repeat_interleave(7 * torch.arange(len(counts)) + 10, torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]


@st.composite
def samplers(draw: st.DrawFn) -> tuple[torch.Tensor, int, int, ClassBatchSampler]:
    """Labels, P, K and their sampler."""
    images = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(1 + (images > 1), 9), min_size=1, max_size=30))
    classes = draw(st.integers(1, len(counts)))
    labels = labels_of(counts)
    seed = draw(st.integers(0, 2**64 - 1))
    return labels, classes, images, ClassBatchSampler(labels, classes, images, seed=seed)


@given(samplers(), st.integers(0, 10**6))
def test_a_batch_has_p_distinct_classes_of_k_images(drawn: tuple, step: int) -> None:
    labels, classes, images, sampler = drawn
    batch = sampler.batch(step)
    groups = labels[torch.tensor(batch)].view(classes, images)
    assert (groups == groups[:, :1]).all()
    assert groups[:, 0].unique().numel() == classes
    assert len(batch) == sampler.batch_size


@given(samplers(), st.integers(0, 10**6))
def test_an_image_comes_again_only_after_all_of_its_class(drawn: tuple, step: int) -> None:
    labels, classes, images, sampler = drawn
    for group in torch.tensor(sampler.batch(step)).view(classes, images):
        size = int((labels == labels[group[0]]).sum())
        for first in range(0, images, size):
            part = group[first : first + size].tolist()
            assert len(set(part)) == len(part)


@given(samplers())
def test_all_classes_are_drawn_equally_often_at_any_time(drawn: tuple) -> None:
    labels, _, images, sampler = drawn
    total = labels.unique().numel()
    seen: Counter[int] = Counter()
    for step in range(3 * total + 2):
        seen.update(labels[torch.tensor(sampler.batch(step))[::images]].tolist())
        fewest = min(seen.values()) if len(seen) == total else 0
        assert max(seen.values()) - fewest <= 1


@given(samplers(), st.integers(0, 500))
def test_a_step_does_not_depend_on_those_before(drawn: tuple, start: int) -> None:
    labels, classes, images, sampler = drawn
    expected = [sampler.batch(step) for step in range(start, start + 5)]
    again = ClassBatchSampler(labels, classes, images, seed=sampler._seed)
    assert list(islice(again.batches(start), 5)) == expected
    assert [sampler.batch(step) for step in reversed(range(start, start + 5))] == expected[::-1]


@pytest.mark.parametrize(("classes", "batch"), [(600, 512), (601, 600), (37, 19), (11318, 32)])
def test_far_steps_are_reached_at_once(classes: int, batch: int) -> None:
    sampler = ClassBatchSampler(torch.arange(classes), batch, 1)
    for step in (10**12, 10**12 + 1):
        assert len(set(sampler.batch(step))) == batch


@pytest.mark.parametrize("world_size", [1, 2, 4, 16])
def test_ranks_share_a_batch_in_order(world_size: int) -> None:
    labels = labels_of([5] * 7)
    whole = ClassBatchSampler(labels, 4, 4, seed=3)
    parts = [
        ClassBatchSampler(labels, 4, 4, seed=3, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    for step in range(5):
        joined = [it for part in parts for it in part.local_batch(step)]
        assert joined == whole.batch(step)
        assert parts[-1].batch(step) == whole.batch(step)


def test_seeds_give_different_batches() -> None:
    labels = labels_of([9] * 20)
    batches = {tuple(ClassBatchSampler(labels, seed=seed).batch(0)) for seed in range(20)}
    assert len(batches) == 20


def test_global_random_states_are_left_alone() -> None:
    before = global_states()
    ClassBatchSampler(labels_of([9] * 20)).batch(3)
    assert global_states() == before


def test_images_of_a_class_are_drawn_uniformly() -> None:
    sampler = ClassBatchSampler([0] * 7 + [1] * 7, 1, 3)
    seen = Counter(tuple(sorted(sampler.batch(step))) for step in range(3500))
    assert len(seen) == 2 * 35  # all subsets of 3 of 7
    assert scipy.stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_order_of_images_is_uniform() -> None:
    sampler = ClassBatchSampler([0] * 4, 1, 4)
    seen = Counter(tuple(sampler.batch(step)) for step in range(2400))
    assert len(seen) == 24
    assert scipy.stats.chisquare(list(seen.values())).pvalue > 1e-3


@pytest.mark.parametrize("total", [5, 7, 10])
def test_classes_meet_uniformly(total: int) -> None:
    # P = 4: batches lie across passes in all ways, with few classes and with enough.
    sampler = ClassBatchSampler(torch.arange(total), 4, 1)
    met = np.zeros((total, total))
    steps = 4000
    for step in range(steps):
        batch = sampler.batch(step)
        met[np.ix_(batch, batch)] += 1
    pairs = met[np.triu_indices(total, 1)]
    assert np.abs(pairs / (steps * 6 / len(pairs)) - 1).max() < 0.15


def test_an_epoch_draws_as_many_images_as_there_are() -> None:
    assert ClassBatchSampler(labels_of([10] * 10), 8, 4).steps_per_epoch == 4  # ⌈100 / 32⌉
    assert ClassBatchSampler(labels_of([8] * 8), 8, 4).steps_per_epoch == 2


def test_proxy_losses_have_one_image_per_class() -> None:
    labels = labels_of([1, 2, 3] * 20)
    sampler = ClassBatchSampler(labels, classes_per_batch=32, images_per_class=1)
    assert labels[torch.tensor(sampler.batch(8))].unique().numel() == 32


def test_a_sampler_can_be_pickled() -> None:
    sampler = ClassBatchSampler(labels_of([9] * 20))
    assert pickle.loads(pickle.dumps(sampler)).batch(5) == sampler.batch(5)


def test_a_class_with_one_image_is_named() -> None:
    labels, names = [0, 0, 1, 2, 2], ["crow", "rare bird", "finch"]
    with pytest.raises(DataError, match=r"only one of 'rare bird'$"):
        ClassBatchSampler(labels, 2, 2, class_names=names)
    with pytest.raises(DataError, match=r"only one of label 1$"):
        ClassBatchSampler(labels, 2, 2)
    with pytest.raises(DataError, match="label 4 and 15 more"):
        ClassBatchSampler(torch.arange(20), 2, 2)
    ClassBatchSampler(labels, 2, 1)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"classes_per_batch": 6}, "at most the number of classes, 5, got 6"),
        ({"classes_per_batch": 0}, "classes_per_batch must be at least 1, got 0"),
        ({"images_per_class": -1}, "images_per_class must be at least 1, got -1"),
        ({"world_size": 0}, "world_size must be at least 1, got 0"),
        ({"world_size": 3}, "divide the batch of 2 × 4 = 8 images, got 3"),
        ({"rank": 2, "world_size": 2}, r"rank must lie in 0\.\.1, got 2"),
        ({"seed": -1}, "seed must be an integer from 0 to"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ClassBatchSampler(labels_of([5] * 5), **{"classes_per_batch": 2, **options})


def test_negative_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="step must be at least 0, got -1"):
        ClassBatchSampler(labels_of([5] * 5), 2).batch(-1)


def test_no_images_are_refused() -> None:
    with pytest.raises(ValueError, match="number of classes, 0, got 8"):
        ClassBatchSampler([])
