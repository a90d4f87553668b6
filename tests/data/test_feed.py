"""Feeds: the same views of the same images, however they come about."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from data.pictures import VIEWS, Pictures, global_states
from sumpool.data.base import BrokenImageError
from sumpool.data.feeds.cache import decode_images
from sumpool.data.feeds.cached_feed import CachedFeed
from sumpool.data.feeds.feed import Batch, ImageFeed, open_feed
from sumpool.data.feeds.loading_feed import _report_exception
from sumpool.data.feeds.memory import CacheMemoryError
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.views import crops
from sumpool.data.views.boxes import view_draws

LABELS = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]
CPU = torch.device("cpu")
KINDS: dict[str, dict[str, Any]] = {
    "here": {"workers": 0},
    "workers": {"workers": 2},
    "ram": {"cache": "ram"},
}
each_kind = pytest.mark.parametrize(
    "kind", ["here", pytest.param("workers", marks=pytest.mark.process), "ram"]
)


def feed_of(kind: str, dataset: Any = None, **options: Any) -> ImageFeed:
    options = {"preprocessing": VIEWS, "progress": False, **KINDS[kind], **options}
    return open_feed(Pictures(LABELS) if dataset is None else dataset, **options)


def sampler_of(**options: Any) -> ClassBatchSampler:
    return ClassBatchSampler(LABELS, 3, 2, **options)


def take(batches: Iterator[Batch], count: int) -> list[Batch]:
    found = list(islice(batches, count))
    batches.close()  # type: ignore[attr-defined]
    return found


def same(first: list[Batch], second: list[Batch]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))


@each_kind
@pytest.mark.parametrize("side", [None, 24])
def test_train_batches_are_random_views_of_the_samplers_images(kind: str, side: int | None) -> None:
    dataset, sampler = Pictures(LABELS), sampler_of(seed=4)
    views = replace(VIEWS, train_crop=side)
    feed = feed_of(kind, seed=7, preprocessing=views)
    for step, batch in enumerate(take(feed.train_batches(sampler), 3)):
        assert batch.indices.tolist() == sampler.batch(step)
        assert batch.labels.tolist() == [LABELS[it] for it in sampler.batch(step)]
        assert batch.images.dtype == torch.float32
        draws = view_draws(seed=7, step=step, first=0, count=6)
        for position, index in enumerate(sampler.batch(step)):
            pixels = views.train_pixels(dataset.images[index], draws[position])
            assert torch.equal(batch.images[position], views.normalize(pixels))
    (tested,) = feed.test_batches([5])
    assert tested.images.shape[-1] == VIEWS.crop


@each_kind
def test_a_resumed_run_sees_the_same_pixels(kind: str) -> None:
    feed = feed_of(kind)
    whole = take(feed.train_batches(sampler_of()), 6)
    assert same(take(feed.train_batches(sampler_of(), start=4), 2), whole[4:])


@each_kind
def test_ranks_see_their_part_of_the_whole_batch(kind: str) -> None:
    (whole,) = take(feed_of(kind).train_batches(sampler_of(), start=3), 1)
    samplers = [sampler_of(rank=rank, world_size=2) for rank in range(2)]
    parts = [take(feed_of(kind).train_batches(it, start=3), 1)[0] for it in samplers]
    for together, first, second in zip(whole, *parts, strict=True):
        assert torch.equal(together, torch.cat([first, second]))


def test_seeds_and_steps_give_other_views() -> None:
    dataset = Pictures([0, 0])
    sampler = ClassBatchSampler(dataset.labels, 1, 2)
    seen = [
        batch.images[batch.indices.argsort()]
        for seed in range(3)
        for batch in take(feed_of("ram", dataset, seed=seed).train_batches(sampler), 3)
    ]
    assert len({it.sum().item() for it in seen}) == 9


@each_kind
def test_global_random_states_are_left_alone(kind: str) -> None:
    before = global_states()
    feed = feed_of(kind)
    take(feed.train_batches(sampler_of()), 2)
    list(feed.test_batches())
    assert global_states() == before


@each_kind
@pytest.mark.parametrize("indices", [None, [7, 3, 3, 0, 11], torch.tensor([5]), []])
def test_test_batches_are_central_views_in_the_order_given(kind: str, indices: Any) -> None:
    dataset = Pictures(LABELS)
    expected = list(range(12)) if indices is None else [int(it) for it in indices]
    batches = list(feed_of(kind).test_batches(indices, batch_size=4))
    assert [len(it.indices) for it in batches] == [
        min(4, len(expected) - first) for first in range(0, len(expected), 4)
    ]
    assert [it for batch in batches for it in batch.indices.tolist()] == expected
    for batch in batches:
        assert batch.labels.tolist() == [LABELS[it] for it in batch.indices.tolist()]
        for image, index in zip(batch.images, batch.indices.tolist(), strict=True):
            pixels = VIEWS.test_pixels(dataset.images[index])
            assert torch.equal(image, VIEWS.normalize(pixels))


@each_kind
def test_without_augmentation_training_shows_the_test_view(kind: str) -> None:
    feed = feed_of(kind, preprocessing=replace(VIEWS, augment="none", flip=False))
    (batch,) = take(feed.train_batches(sampler_of(), start=2), 1)
    (test,) = feed.test_batches(batch.indices)
    assert same([batch], [test])


@pytest.mark.parametrize("kind", ["resident", "staged"])
@pytest.mark.parametrize("augment", ["crop", "none"])
def test_crops_on_the_device_show_what_the_host_shows(
    kind: str, augment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What runs on a GPU, run on the CPU.
    def made(pixels: torch.Tensor, size: int, device: torch.device) -> crops.Crops:
        if kind == "resident":
            return crops.resident_crops(pixels, size, pinned=False)
        return crops.staged_crops(pixels, size, device, pinned=False)

    dataset, views = Pictures(LABELS), replace(VIEWS, augment=augment)
    decoded = decode_images(dataset, 48, progress=False)
    host = CachedFeed(dataset, views, decoded, CPU)
    monkeypatch.setattr("sumpool.data.feeds.cached_feed.choose_crops", made)
    device = CachedFeed(dataset, views, decoded, CPU)
    assert same(list(device.test_batches()), list(host.test_batches()))
    first = take(host.train_batches(sampler_of()), 3)
    second = take(device.train_batches(sampler_of()), 3)
    if augment == "none":
        assert same(first, second)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.indices, other.indices)
        gray = 255 * torch.tensor(views.std).view(3, 1, 1) * (one.images - other.images).abs()
        assert gray.mean() < 0.4
        assert gray.max() < 1.2


def test_feeds_share_one_cache() -> None:
    dataset = Pictures(LABELS)
    decoded = decode_images(dataset, 48, progress=False)
    loads = dataset.loads
    for part in ([0, 1, 2, 5], [11, 10, 9]):
        subset = dataset.subset(part)
        shared = feed_of("ram", subset, decoded=decoded)
        assert dataset.loads == loads
        assert same(list(shared.test_batches()), list(feed_of("here", subset).test_batches()))
        loads = dataset.loads


def test_processes_share_a_cache_on_disk(tmp_path: Path) -> None:
    first = feed_of("ram", cache_dir=tmp_path)
    again = feed_of("ram", cache_dir=tmp_path)
    assert len(list(tmp_path.glob("*.pixels"))) == 1
    assert same(list(first.test_batches()), list(again.test_batches()))
    batches = [take(it.train_batches(sampler_of()), 2) for it in (first, again, feed_of("here"))]
    assert same(batches[0], batches[1])
    assert same(batches[0], batches[2])


@pytest.mark.parametrize("kind", ["here", pytest.param("workers", marks=pytest.mark.process)])
@pytest.mark.parametrize("train", [True, False])
def test_a_broken_image_is_named_and_nothing_else_said(kind: str, train: bool) -> None:
    feed = feed_of(kind, Pictures(LABELS, broken=[4]))
    batches = feed.train_batches(sampler_of()) if train else feed.test_batches(batch_size=5)
    with pytest.raises(BrokenImageError) as error:
        list(islice(batches, 20))
    assert str(error.value) == "cannot read the image album/picture 4: it is torn"
    assert multiprocessing.active_children() == []


def test_a_broken_image_is_named_when_a_cache_is_made() -> None:
    with pytest.raises(BrokenImageError, match="album/picture 4: it is torn"):
        feed_of("ram", Pictures(LABELS, broken=[4]))


@pytest.mark.process
def test_workers_end_with_training() -> None:
    batches = feed_of("workers").train_batches(sampler_of())
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    batches.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_left_to_the_main_process(number: signal.Signals) -> None:
    batches = feed_of("workers").train_batches(sampler_of())
    next(batches)
    pids = [str(worker.pid) for worker in multiprocessing.active_children()]
    assert len(pids) == 2
    subprocess.run(["kill", f"-{number.value}", *pids], check=True)  # as `timeout` does
    assert len(take(batches, 20)) == 20


def test_a_worker_says_nothing_of_a_parent_that_hangs_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _report_exception(EOFError, EOFError(), None)
    assert capsys.readouterr().err == ""
    _report_exception(ValueError, ValueError("a defect"), None)
    assert "a defect" in capsys.readouterr().err


@pytest.mark.process
def test_workers_wait_for_the_next_validation() -> None:
    def pids() -> set[int | None]:
        return {it.pid for it in multiprocessing.active_children()}

    feed = feed_of("workers")
    first = list(feed.test_batches(batch_size=5))
    waiting = pids()
    assert len(waiting) == 2
    again = list(feed.test_batches([3, 1], batch_size=1))
    assert [it.indices.tolist() for it in again] == [[3], [1]]
    assert same(list(feed.test_batches(batch_size=5)), first)
    assert pids() == waiting
    half = feed.test_batches(batch_size=2)
    next(half)
    half.close()  # type: ignore[attr-defined]
    assert pids() == set()
    list(feed.test_batches())
    feed.close()
    assert pids() == set()


@pytest.mark.process
def test_two_validations_can_run_at_once() -> None:
    feed = feed_of("workers")
    pairs = list(zip(feed.test_batches([0, 1, 2], 1), feed.test_batches([5, 6, 7], 1), strict=True))
    assert [(int(a.indices), int(b.indices)) for a, b in pairs] == [(0, 5), (1, 6), (2, 7)]
    feed.close()


def test_the_thread_of_a_cached_feed_ends_with_it() -> None:
    def threads() -> list[str]:
        return [it.name for it in threading.enumerate() if it.name.startswith("sumpool")]

    batches = feed_of("ram").train_batches(sampler_of())
    next(batches)
    assert len(threads()) == 1
    batches.close()  # type: ignore[attr-defined]
    assert threads() == []


@each_kind
def test_batches_carry_no_gradient_and_leave_the_mode_alone(kind: str) -> None:
    batches = feed_of(kind).train_batches(sampler_of())
    for batch in islice(batches, 2):
        assert torch.is_grad_enabled()
        assert not batch.images.requires_grad
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"cache": "disk"}, "cache must be one of none, ram, gpu, got 'disk'"),
        ({"cache": "gpu"}, "cache 'gpu' needs a CUDA device, got device 'cpu'"),
        ({"cache_dir": "x"}, "cache_dir needs cache 'ram' or 'gpu', got cache 'none'"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"seed": -1}, "seed must be an integer from 0"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        open_feed(Pictures(LABELS), VIEWS, **options)


def test_bad_caches_are_refused(tmp_path: Path) -> None:
    dataset = Pictures(LABELS)
    decoded = decode_images(dataset, 32, progress=False)
    with pytest.raises(ValueError, match="shorter side of preprocessing, 48; it has 32"):
        open_feed(dataset, VIEWS, cache="ram", decoded=decoded)
    with pytest.raises(ValueError, match="decoded needs cache 'ram' or 'gpu'"):
        open_feed(dataset, VIEWS, decoded=decoded)
    with pytest.raises(ValueError, match="cache_dir and decoded exclude each other"):
        open_feed(dataset, VIEWS, cache="ram", decoded=decoded, cache_dir=tmp_path)


def test_transforms_of_the_data_set_are_refused() -> None:
    dataset = Pictures(LABELS)
    dataset.transform = lambda image: image
    with pytest.raises(ValueError, match="dataset must have no transform"):
        open_feed(dataset, VIEWS)


@pytest.mark.parametrize("kind", ["here", "ram"])
def test_bad_requests_are_named(kind: str) -> None:
    feed = feed_of(kind)
    with pytest.raises(ValueError, match="built for the 12 images of the data set, it is for 4"):
        feed.train_batches(ClassBatchSampler([0, 0, 1, 1], 2, 2))
    with pytest.raises(IndexError, match=r"indices must lie in 0\.\.11, got values from 3 to 12"):
        feed.test_batches([3, 12])
    with pytest.raises(IndexError, match="got values from -1 to -1"):
        feed.test_batches([-1])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        feed.test_batches(batch_size=0)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("cache", ["none", "ram", "gpu"])
def test_a_gpu_sees_what_the_cpu_sees(cache: Any) -> None:
    feed = open_feed(Pictures(LABELS), VIEWS, cache=cache, device="cuda", progress=False)
    host = feed_of("here")
    for one, other in zip(feed.test_batches(), host.test_batches(), strict=True):
        assert one.images.is_cuda
        assert not one.indices.is_cuda
        torch.testing.assert_close(one.images.cpu(), other.images, rtol=0, atol=1e-5)
    first = take(feed.train_batches(sampler_of()), 3)
    second = take(host.train_batches(sampler_of()), 3)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.labels.cpu(), other.labels)
        gray = 255 * torch.tensor(VIEWS.std).view(3, 1, 1) * (one.images.cpu() - other.images).abs()
        assert gray.mean() < 0.45


@pytest.mark.gpu
@gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("cache", ["ram", "gpu"])
def test_training_batches_never_wait_for_the_gpu(cache: Any) -> None:
    feed = open_feed(Pictures(LABELS), VIEWS, cache=cache, device="cuda", progress=False)
    batches = feed.train_batches(sampler_of())
    next(batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        take(batches, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@gpu
def test_too_little_gpu_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 2000))
    with pytest.raises(CacheMemoryError, match="on cuda:0, of which 1,000 bytes"):
        open_feed(Pictures(LABELS), VIEWS, cache="gpu", device="cuda", progress=False)
