"""Retrieval metrics are what their definitions say, whichever way they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluation.ranking_oracle import CASES, WAYS, Case, solved, together, way
from sumpool.evaluation import metrics, neighbors, retrieval_metrics, score_queries

pytestmark = together


@cache
def case_and_truth(name: str) -> tuple[Case, dict[str, float]]:
    case, order = solved(name)
    return case, case.truth(order)


def measured(case: Case, **options: Any) -> dict[str, float]:
    return retrieval_metrics(
        case.query, case.query_labels, case.gallery, case.gallery_labels, ks=case.ks, **options
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", WAYS)
def test_metrics_equal_a_naive_loop(how: str, name: str) -> None:
    case, truth = case_and_truth(name)
    with way(how) as options:
        found = measured(case, **options)
    assert list(found) == list(truth)
    assert found == pytest.approx(truth, abs=1e-12)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 40),
    st.integers(1, 3),
    st.integers(1, 6),
    st.sampled_from(sorted(set(WAYS) - {"scanned"})),
)
def test_metrics_equal_a_naive_loop_on_coarse_grids(
    seed: int, items: int, dimensions: int, classes: int, how: str
) -> None:
    draw = torch.Generator().manual_seed(seed)
    query = torch.randint(-2, 3, (items, dimensions), generator=draw).float()
    labels = torch.randint(classes, (items,), generator=draw)
    labels[0] = labels[1]  # one match at least
    case = Case(query, labels, ks=(1, items - 1))
    with way(how) as options:
        found = measured(case, **options)
    assert found == pytest.approx(case.truth(case.order()), abs=1e-12)


@pytest.mark.parametrize("name", ["clusters", "half of them zero"])
@pytest.mark.parametrize("memory", [1, 30_000])
def test_any_amount_of_memory_will_do(name: str, memory: int) -> None:
    case, truth = case_and_truth(name)
    assert measured(case, max_memory=memory) == pytest.approx(truth, abs=1e-12)


def test_the_scan_is_taken_where_it_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    scan = neighbors.scan

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return scan(*arguments)

    monkeypatch.setattr(neighbors, "scan", noted)
    case, _ = case_and_truth("clusters")
    measured(case)
    assert not calls
    with way("scanned") as options:
        measured(case, **options)
    assert calls


@pytest.mark.parametrize("how", WAYS)
def test_a_query_never_retrieves_itself(how: str) -> None:
    # Every item is nearest to itself; the next one is of another class.
    points = torch.arange(300.0)[:, None]
    with way(how) as options:
        found = retrieval_metrics(points, torch.arange(300) % 2, ks=(1, 2, 3), **options)
    assert found["precision_at_1"] == 0
    assert found["recall_at_3"] == 1


def test_a_copy_of_the_query_counts() -> None:
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(2, 1)
    same = retrieval_metrics(points, torch.tensor([1, 2, 1, 2]), ks=(1,))
    assert same["precision_at_1"] == 1
    other = retrieval_metrics(points, torch.tensor([1, 1, 2, 2]), ks=(1,))
    assert other["precision_at_1"] == 0


def test_a_gallery_that_holds_the_queries_returns_them() -> None:
    points, labels = torch.randn(50, 4), torch.arange(50)
    found = retrieval_metrics(points, labels, points.clone(), labels)
    assert found["mean_average_precision_at_r"] == 1
    assert found["queries"] == 50


def test_of_equal_distances_the_lower_index_comes_first() -> None:
    query, gallery = torch.zeros(1, 2), torch.tensor([[0.0, 1], [1, 0], [0, -1], [-1, 0]])
    for place in range(4):
        labels = torch.full((4,), 9)
        labels[place] = 5
        found = retrieval_metrics(query, torch.tensor([5]), gallery, labels, ks=(1, 2, 3, 4))
        first = [found[f"recall_at_{k}"] for k in (1, 2, 3, 4)]
        assert first == [float(place < k) for k in (1, 2, 3, 4)]


def test_queries_without_a_match_are_left_out_and_counted() -> None:
    points = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    found = retrieval_metrics(points, torch.tensor([1, 1, 2, 3]), ks=(1,))
    assert found["queries"] == 2
    assert found["queries_without_match"] == 2
    assert found["precision_at_1"] == 1


def test_precision_at_one_is_there_whatever_ks_are_asked_for() -> None:
    case, truth = case_and_truth("clusters")
    found = retrieval_metrics(case.query, case.query_labels, ks=(4,))
    assert found["precision_at_1"] == pytest.approx(truth["precision_at_1"])
    assert "recall_at_1" not in found


def test_one_large_class_among_small_ones_is_ranked_apart() -> None:
    draw = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.zeros(40, dtype=torch.int64), torch.arange(220) // 4 + 1])
    case = Case(torch.randn(260, 4, generator=draw), labels)
    truth = case.truth(case.order())
    for how in ("scanned", "searched"):
        with way(how) as options, pytest.MonkeyPatch.context() as patch:
            patch.setattr(metrics, "_SEARCHED", 12)
            found = measured(case, **options)
        assert found == pytest.approx(truth, abs=1e-12)


def test_perfect_classes_have_perfect_scores() -> None:
    labels = torch.arange(300) % 10
    found = retrieval_metrics(torch.eye(10)[labels], labels)
    assert {found[name] for name in found if not name.startswith("queries")} == {1.0}


def test_metrics_do_not_depend_on_scale_or_shift() -> None:
    case, _ = case_and_truth("clusters")
    assert measured(case) == retrieval_metrics(case.query * 8, case.query_labels)
    shifted = retrieval_metrics(case.query.double() + 4, case.query_labels)
    assert shifted == pytest.approx(measured(case), abs=1e-6)


def test_items_may_come_in_any_order() -> None:
    case, truth = case_and_truth("negative similarities")
    order = torch.randperm(len(case.query))
    found = retrieval_metrics(case.query[order], case.query_labels[order])
    assert found == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (x.numpy(), y.numpy()),
        lambda x, y: (x.numpy(), y.numpy().astype(np.uint64)),
        lambda x, y: (x.double(), y.int()),
        lambda x, y: (x.clone().requires_grad_(), y),
        lambda x, y: (x.t().contiguous().t(), y.repeat_interleave(2)[::2]),
        lambda x, y: (np.asfortranarray(x.numpy()), y.to(torch.uint8)),
    ],
)
def test_tensors_and_arrays_of_any_layout_give_the_same(form: Any) -> None:
    case, _ = case_and_truth("clusters")
    assert retrieval_metrics(*form(case.query, case.query_labels)) == measured(case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_taken_as_it_is(dtype: torch.dtype) -> None:
    case, _ = case_and_truth("clusters")
    half = case.query.to(dtype)
    found = retrieval_metrics(half, case.query_labels)
    assert found == retrieval_metrics(half.double(), case.query_labels)


def test_arguments_are_left_as_they_were() -> None:
    case, _ = case_and_truth("many ties")
    query, labels = case.query.clone(), case.query_labels.clone()
    for how in WAYS:
        with way(how) as options:
            retrieval_metrics(query, labels, **options)
    assert torch.equal(query, case.query)
    assert torch.equal(labels, case.query_labels)


@pytest.fixture
def lowest_precision() -> Iterator[None]:
    """Float32 products may be taken in bfloat16 wherever that is fast."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("lowest_precision")
@pytest.mark.parametrize("how", WAYS)
def test_products_are_exact_whatever_precision_is_allowed(how: str) -> None:
    case, truth = case_and_truth("clusters")
    with way(how) as options, torch.autocast("cpu", torch.bfloat16):
        found = measured(case, **options)
    assert found == pytest.approx(truth, abs=1e-12)
    assert torch.get_float32_matmul_precision() == "medium"


def test_scores_of_queries_average_to_the_metrics() -> None:
    case, truth = case_and_truth("singletons")
    scores = score_queries(case.query, case.query_labels)
    there = scores.matches > 0
    assert torch.equal(there, ~scores.average_precision.isnan())
    assert int(there.sum()) == truth["queries"]
    average = scores.average_precision[there].mean().item()
    assert average == pytest.approx(truth["mean_average_precision_at_r"])
    precision = (scores.first_match[there] == 1).double().mean().item()
    assert precision == pytest.approx(truth["precision_at_1"])
    assert (scores.first_match[~there] == 0).all()


def test_the_first_match_of_a_query_does_not_depend_on_others() -> None:
    # The five queries have a match each; what follows is far away and searched deeper.
    points = torch.tensor([0, 1, 1.1, 1.2, 3, 100, 101, 102, 103, 104, 105])[:, None]
    labels = torch.tensor([0, 1, 2, 3, 0, 5, 5, 5, 5, 5, 5])
    alone = score_queries(points[:5], labels[:5]).first_match
    assert torch.equal(score_queries(points, labels).first_match[:5], alone)


def test_a_progress_bar_counts_every_query_once(capsys: pytest.CaptureFixture[str]) -> None:
    case, _ = case_and_truth("many ties")
    for how in WAYS:
        with way(how) as options:
            measured(case, progress=True, **options)
        assert "260/260" in capsys.readouterr().err, how
    measured(case)
    assert capsys.readouterr().err == ""
