"""Evaluating a model on images: what is measured where there are few of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from evaluation.number_feed import NumberFeed, Squares
from sumpool.data import DataError
from sumpool.evaluation import evaluate_retrieval
from sumpool.evaluation.evaluate import KS, evaluation_files, write_evaluation
from sumpool.system.digests import check_digests
from sumpool.system.files import StoreError

ALWAYS = {"precision_at_1", "r_precision", "mean_average_precision_at_r", "queries"}


def measured(count: int, gallery: int | None = None, **options: Any) -> dict[str, float]:
    searched: Any = None if gallery is None else NumberFeed(gallery)
    images: Any = NumberFeed(count)
    return evaluate_retrieval(Squares(), images, searched, **options).metrics


def recalls(metrics: dict[str, float]) -> list[int]:
    return [int(name[10:]) for name in metrics if name.startswith("recall_at_")]


@pytest.mark.parametrize("gallery", [None, 1])
def test_nothing_is_measured_among_images_of_one_class(gallery: int | None) -> None:
    feed: Any = NumberFeed(9)
    searched: Any = None if gallery is None else NumberFeed(gallery)
    feed.dataset.labels[:] = 0
    with pytest.raises(DataError, match=r"nothing can be measured: .* class 0"):
        evaluate_retrieval(Squares(), feed, searched)


@pytest.mark.parametrize(
    ("count", "gallery", "expected"),
    [
        (4, None, [1, 2]),
        (5, None, [1, 2, 4]),
        (8, None, [1, 2, 4]),
        (9, None, [1, 2, 4, 8]),
        (9, 2, [1, 2]),
        (1, 8, [1, 2, 4, 8]),
    ],
)
def test_default_ks_beyond_what_can_be_found_are_left_out(
    count: int, gallery: int | None, expected: list[int]
) -> None:
    metrics = measured(count, gallery)
    assert recalls(metrics) == expected
    assert metrics.keys() >= ALWAYS
    assert measured(count, gallery, ks=list(KS)) == metrics


def test_queries_in_the_gallery_are_refused_before_images_are_embedded() -> None:
    queries: Any = NumberFeed(9)
    gallery: Any = NumberFeed(12)
    for feed, first in ((queries, 0), (gallery, 7)):
        feed.dataset.item_name = lambda index, first=first: f"{first + index}.jpg"
        feed.dataset.item_file = feed.dataset.item_name
    with pytest.raises(DataError, match=r"2 images to search for would find .*, such as 7\.jpg"):
        evaluate_retrieval(Squares(), queries, gallery)
    assert not queries.given


def test_classes_of_queries_and_gallery_must_have_the_same_numbers() -> None:
    queries: Any = NumberFeed(9)
    gallery: Any = NumberFeed(9)
    gallery.dataset.class_names = ["class 0", "class 2", "class 1"]
    with pytest.raises(DataError, match=r"label 1 is class 1 among the queries and class 2 in"):
        evaluate_retrieval(Squares(), queries, gallery)
    gallery.dataset.class_names = [*queries.dataset.class_names, "class 3"]
    evaluate_retrieval(Squares(), queries, gallery)


def test_other_ks_beyond_what_can_be_found_are_refused_before_images_are_embedded() -> None:
    feed: Any = NumberFeed(6)
    with pytest.raises(DataError, match="ks must be at most 5, the images a query can find, got 6"):
        evaluate_retrieval(Squares(), feed, ks=(1, 6))
    assert feed.given == []
    assert recalls(measured(6, ks=(1, 5))) == [1, 5]
    with pytest.raises(DataError, match="at most 3, the images a query can find, got 4"):
        measured(6, 3, ks=(4,))


def test_images_without_two_of_a_class_are_refused_before_they_are_embedded() -> None:
    feed: Any = NumberFeed(3)
    with pytest.raises(DataError, match="none of the 3 images to search for has another one"):
        evaluate_retrieval(Squares(), feed)
    assert feed.given == []
    others: Any = NumberFeed(3)
    others.dataset.labels += 7
    with pytest.raises(DataError, match="none of the 3 images to search for has another one"):
        evaluate_retrieval(Squares(), feed, others)
    assert torch.equal(feed.dataset.labels, torch.arange(3))


def test_files_of_a_former_gallery_do_not_stay(tmp_path: Path) -> None:
    feed: Any = NumberFeed(6)
    searched: Any = NumberFeed(4)
    found = evaluate_retrieval(Squares(), feed, searched)
    write_evaluation(tmp_path, found, feed.dataset, searched.dataset)
    write_evaluation(tmp_path, evaluate_retrieval(Squares(), feed), feed.dataset)
    files = evaluation_files(tmp_path, gallery=False)
    assert sorted(tmp_path.iterdir()) == sorted(files)


@pytest.mark.parametrize("ks", [(0,), (1, -1), (1.5,)])
def test_impossible_ks_are_refused_before_images_are_embedded(ks: Any) -> None:
    feed: Any = NumberFeed(6)
    with pytest.raises((TypeError, ValueError), match="ks must"):
        evaluate_retrieval(Squares(), feed, ks=ks)
    assert feed.given == []


@pytest.mark.parametrize("gallery", [None, 4])
def test_what_is_stored_has_digests_that_find_damage(tmp_path: Path, gallery: int | None) -> None:
    feed: Any = NumberFeed(6)
    searched: Any = None if gallery is None else NumberFeed(gallery)
    (tmp_path / "notes.txt").write_text("not ours")
    for _ in range(2):  # the second replaces the first
        found = evaluate_retrieval(Squares(), feed, searched)
        write_evaluation(tmp_path, found, feed.dataset, searched and searched.dataset)
    files = evaluation_files(tmp_path, gallery=gallery is not None)
    listed = [line.split("  ")[1] for line in files[-1].read_text().splitlines()]
    assert [it.name for it in files] == [*listed, "SHA256SUMS"]
    check_digests(tmp_path, "SHA256SUMS", listed)
    for path in files[:-1]:
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        with pytest.raises(StoreError, match=f"{path} is damaged"):
            check_digests(tmp_path, "SHA256SUMS", listed)
        path.write_bytes(sound)
