"""Splits by class: disjoint, complete, the same every time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sumpool.data import DataError, class_fold, contiguous_labels, split_classes

BIG = 2**24
# Neighbours above 2²⁴ are one number in float32, and above 2⁵³ in float64 too.
label = st.one_of(st.integers(0, 12), st.integers(BIG, BIG + 12), st.integers(-(2**63), 2**63 - 1))
label_lists = st.lists(label, min_size=1, max_size=60)


def classes(labels: Tensor) -> set[int]:
    return set(labels.tolist())


def check_parts(labels: Tensor, first: Tensor, second: Tensor) -> None:
    """The two parts are disjoint in classes and together all images, each in order."""
    assert first.dtype == second.dtype == torch.int64
    assert sorted(first.tolist() + second.tolist()) == list(range(len(labels)))
    assert first.tolist() == sorted(first.tolist())
    assert second.tolist() == sorted(second.tolist())
    assert not classes(labels[first]) & classes(labels[second])
    assert len(first)
    assert len(second)


@given(label_lists, st.integers(2, 6))
def test_folds_are_disjoint_and_each_class_is_validated_once(values: list[int], folds: int) -> None:
    labels = torch.tensor(values)
    if len(set(values)) < folds:
        with pytest.raises(DataError, match=rf"{folds} folds need as many classes"):
            class_fold(labels, 0, folds)
        return
    validated: list[int] = []
    sizes = []
    for fold in range(folds):
        train, validation = class_fold(labels, fold, folds)
        check_parts(labels, train, validation)
        held_out = sorted(classes(labels[validation]))
        validated += held_out
        sizes.append(len(held_out))
    assert validated == sorted(set(values))  # once each, and in runs of the class order
    assert max(sizes) - min(sizes) <= 1


def test_four_folds_of_a_hundred_classes_are_runs_of_25() -> None:
    labels = torch.arange(100).repeat_interleave(3)
    for fold in range(4):
        train, validation = class_fold(labels, fold)
        assert labels[validation].unique().tolist() == list(range(25 * fold, 25 * fold + 25))
        assert len(train) == 225


@given(label_lists, st.integers(2, 4), st.randoms(use_true_random=False))
def test_folds_depend_on_the_class_alone_not_on_the_order(
    values: list[int], folds: int, random: object
) -> None:
    if len(set(values)) < folds:
        return
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for fold in range(folds):
        one, other = (
            classes(torch.tensor(it)[class_fold(it, fold, folds)[1]]) for it in (values, shuffled)
        )
        assert one == other


@given(label_lists, st.floats(0.01, 0.99), st.integers(0, 2**40))
def test_random_splits_are_disjoint_complete_and_repeatable(
    values: list[int], fraction: float, seed: int
) -> None:
    labels = torch.tensor(values)
    count = len(set(values))
    if count < 2:
        with pytest.raises(DataError, match="needs two of them, there are 1"):
            split_classes(labels, fraction, seed)
        return
    kept, held_out = split_classes(labels, fraction, seed)
    check_parts(labels, kept, held_out)
    least = 2 if count >= 4 else 1
    wanted = min(max(fraction * count, least), count - least)
    assert abs(len(classes(labels[held_out])) - wanted) <= 0.5
    again = split_classes(values, fraction, seed)
    assert torch.equal(again[0], kept)
    assert torch.equal(again[1], held_out)


def test_seeds_choose_different_classes_evenly() -> None:
    labels = torch.arange(10)
    counts = torch.zeros(10)
    for seed in range(400):
        counts[split_classes(labels, 0.3, seed)[1]] += 1
    assert (counts / 400 - 0.3).abs().max() < 0.1


@given(st.lists(label, max_size=60))
def test_contiguous_labels_number_the_classes_in_order(values: list[int]) -> None:
    new, old = contiguous_labels(values)
    assert old.tolist() == sorted(set(values))
    assert [old.tolist()[it] for it in new.tolist()] == values
    assert set(new.tolist()) == set(range(len(old)))


def test_neighbors_above_float_precision_stay_apart() -> None:
    labels = [BIG, BIG + 1, 2**53, 2**53 + 1]
    assert contiguous_labels(labels)[0].tolist() == [0, 1, 2, 3]
    assert [len(part) for part in class_fold(labels, 3)] == [3, 1]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"fold": 0, "folds": 1}, r"folds must be at least 2, got 1"),
        ({"fold": 4, "folds": 4}, r"fold must lie in 0\.\.3 with folds=4, got 4"),
        ({"fold": -1, "folds": 4}, r"fold must lie in 0\.\.3 with folds=4, got -1"),
    ],
)
def test_folds_that_are_none_are_refused(options: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        class_fold(torch.arange(8), **options)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_fractions_that_leave_nothing_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"fraction must be a number in \(0, 1\), got"):
        split_classes(torch.arange(8), fraction, 0)


def test_labels_that_are_not_integers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"labels must be integers, got torch\.float32"):
        class_fold(torch.rand(8), 0)
    with pytest.raises(ValueError, match=r"labels must have one dimension, got shape \(2, 2\)"):
        contiguous_labels(torch.zeros(2, 2, dtype=torch.int64))
