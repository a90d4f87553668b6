"""Metrics equal those of pytorch-metric-learning's calculator wherever that one is right."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor

from evaluation.ranking_oracle import CASES
from sumpool.evaluation import retrieval_metrics

pytest.importorskip("faiss")  # which the calculator searches with

NAMES = ("precision_at_1", "r_precision", "mean_average_precision_at_r")


def theirs(
    query: Tensor, labels: Tensor, gallery: Tensor | None = None, others: Tensor | None = None
) -> dict[str, float]:
    calculator = AccuracyCalculator(include=NAMES, k="max_bin_count", device=torch.device("cpu"))
    out: dict[str, float] = calculator.get_accuracy(query, labels, gallery, others)
    return out


@pytest.mark.parametrize(
    "name",
    [
        "negative similarities",
        "clusters",
        "singletons",
        "one class",
        "negative labels",
        "query and gallery",
        "far norms",
    ],
)
def test_metrics_equal_the_calculator(name: str) -> None:
    case = CASES[name]()
    arguments = (case.query, case.query_labels, case.gallery, case.gallery_labels)
    found = retrieval_metrics(*arguments)
    expected = theirs(*arguments)
    assert {it: found[it] for it in NAMES} == pytest.approx(expected, abs=1e-6)


def test_the_calculator_merges_labels_above_2_to_24() -> None:
    # Pairs at distance 1, far from all others: every query finds its one match first.
    pairs = torch.arange(40) // 2
    points = 100.0 * pairs[:, None] + torch.arange(40)[:, None] % 2
    small, large = pairs, 2**24 + pairs
    assert retrieval_metrics(points, large) == retrieval_metrics(points, small)
    assert retrieval_metrics(points, large)["mean_average_precision_at_r"] == 1
    assert theirs(points, small)["mean_average_precision_at_r"] == 1
    # As float32, 2²⁴ + 1 is 2²⁴: neighboring classes become one, with R = 3 or more.
    assert len(large.float().unique()) < 20
    assert theirs(points, large)["mean_average_precision_at_r"] < 0.9
