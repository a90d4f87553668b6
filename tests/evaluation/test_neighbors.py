"""Nearest neighbors are exact, ties included, on every way to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evaluation.ranking_oracle import CASES, WAYS, Case, ranked, solved, together, way
from sumpool.evaluation import nearest_neighbors, neighbors
from sumpool.evaluation.comparison import STRIP
from sumpool.evaluation.search import batches, largest, mirrored

pytestmark = together

SEARCHED = [name for name in WAYS if "ranked" not in name]


def case_and_order(name: str) -> tuple[Case, Tensor]:
    case, order = solved(name)
    return case, torch.tensor(order)


def found(case: Case, k: int, **options: Any) -> tuple[Tensor, Tensor]:
    own = case.gallery is None
    return nearest_neighbors(case.query, case.gallery, k, exclude_self=own, **options)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", SEARCHED)
def test_neighbors_are_those_of_exact_arithmetic(how: str, name: str) -> None:
    case, order = case_and_order(name)
    for k in {1, min(17, order.shape[1]), order.shape[1]}:
        with way(how) as options:
            _, indices = found(case, k, **options)
        assert torch.equal(indices, order[:, :k]), k


@pytest.mark.parametrize("how", SEARCHED)
def test_similarities_are_the_same_to_the_last_bit(how: str) -> None:
    case, _ = case_and_order("clusters")
    expected, _ = found(case, 20)
    with way(how) as options:
        similarities, _ = found(case, 20, **options)
    assert torch.equal(similarities, expected)


def test_similarity_of_unit_vectors_is_their_cosine() -> None:
    case, _ = case_and_order("negative similarities")
    similarities, indices = found(case, 259)
    cosines = (case.query.double() @ case.query.double().t()).gather(1, indices)
    torch.testing.assert_close(similarities, cosines.float(), atol=1e-6, rtol=0)
    assert similarities.min() < -0.5


def test_similarities_fall() -> None:
    for name in ("far norms", "copies", "many ties"):
        similarities, _ = found(case_and_order(name)[0], 100)
        assert (similarities.diff(dim=1) <= 0).all()


def test_without_exclusion_an_item_is_nearest_to_itself() -> None:
    case, _ = case_and_order("clusters")
    for gallery in (None, case.query, case.query.clone()):
        similarities, indices = nearest_neighbors(case.query, gallery, 1)
        assert indices[:, 0].tolist() == list(range(260))
        assert (similarities == 1).all()


def test_an_excluded_item_leaves_its_copies() -> None:
    points = torch.ones(3, 2)
    _, indices = nearest_neighbors(points, None, 2, exclude_self=True)
    assert indices.tolist() == [[1, 2], [0, 2], [0, 1]]


def test_a_gallery_equal_to_the_queries_gives_the_same() -> None:
    case, _ = case_and_order("clusters")
    expected = nearest_neighbors(case.query, None, 9, exclude_self=True)
    again = nearest_neighbors(case.query, case.query.clone(), 9, exclude_self=True)
    assert all(torch.equal(a, b) for a, b in zip(expected, again, strict=True))


def test_two_views_of_the_same_items_may_differ() -> None:
    first, second = torch.randn(260, 4), torch.randn(260, 4)
    order = torch.tensor(ranked(first, second, True))
    for how in SEARCHED:
        with way(how) as options:
            _, indices = nearest_neighbors(first, second, 5, exclude_self=True, **options)
        assert torch.equal(indices, order[:, :5]), how


@pytest.mark.process
def test_a_scan_of_many_points_finds_what_rows_find(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sorted along a line, in clusters, with copies: whatever might upset the thresholds.
    draw = torch.Generator().manual_seed(0)
    centers = torch.linspace(-30, 30, 170)[:, None] * torch.ones(12)
    points = centers.repeat_interleave(100, 0) + torch.randn(17_000, 12, generator=draw)
    points[5000:5100] = points[:100]
    scanned = nearest_neighbors(points, None, 20, exclude_self=True)
    monkeypatch.setattr(neighbors, "applies", lambda *_: False)
    direct = nearest_neighbors(points, None, 20, exclude_self=True)
    assert all(torch.equal(a, b) for a, b in zip(scanned, direct, strict=True))


def test_order_of_the_gallery_decides_ties_only() -> None:
    case, _ = case_and_order("many ties")
    flipped, indices = nearest_neighbors(case.query, case.query.flip(0), 30)
    plain, _ = nearest_neighbors(case.query, case.query, 30)
    assert torch.equal(flipped, plain)
    level = flipped[:, 1:] == flipped[:, :-1]
    assert (indices.diff(dim=1) > 0)[level].all()


def test_arrays_are_taken_and_tensors_returned() -> None:
    points = np.random.default_rng(0).normal(size=(20, 3))
    similarities, indices = nearest_neighbors(points, points[:5], 2)
    assert similarities.dtype == torch.float32
    assert indices.dtype == torch.int64
    assert indices.shape == similarities.shape == (20, 2)


@pytest.mark.parametrize("width", [100, 8192, 8192 + STRIP, 8192 + 7])
@pytest.mark.parametrize("k", [1, 16, 60])
def test_strips_find_the_largest_numbers(width: int, k: int) -> None:
    scores = torch.randn(5, width)
    values, places = largest(scores, k)
    assert torch.equal(values, scores.topk(k, dim=1).values)
    assert torch.equal(scores.gather(1, places), values)


@pytest.mark.parametrize("n", [1, 1000, 1024, 2500])
def test_half_of_a_symmetric_product_makes_it_whole(n: int) -> None:
    x = torch.randn(n, 5)
    right = torch.cat([x.t(), torch.ones(5, 3)], dim=1)
    torch.testing.assert_close(mirrored(x, right), x @ right)


@pytest.mark.parametrize("rows", [0, 1, 10, 97])
@pytest.mark.parametrize("memory", [1, 30, 1000])
def test_batches_cover_all_rows_within_the_memory(rows: int, memory: int) -> None:
    parts = list(batches(torch.arange(rows), 7, memory))
    assert torch.cat([torch.arange(0), *parts]).tolist() == list(range(rows))
    assert all(1 <= len(part) <= max(1, memory // 7) for part in parts)
