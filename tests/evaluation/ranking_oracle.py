"""Retrieval by plain loops, and the sets of vectors it is compared on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import mul
from typing import Any

import pytest
import torch
from torch import Tensor

from sumpool.evaluation import metrics, scan
from sumpool.evaluation.inputs import MAX_MEMORY


def ranked(query: Tensor, gallery: Tensor, own: bool) -> list[list[int]]:
    """Gallery indices by distance, then by index, one list for each query.

    Distances have no rounding: numbers are whole multiples of a power of two.
    """
    values = torch.cat([query, gallery]).double().tolist()
    fine = max(x.as_integer_ratio()[1] for vector in values for x in vector)
    whole = [
        [n * (fine // d) for n, d in (x.as_integer_ratio() for x in vector)] for vector in values
    ]
    items = whole[len(query) :]
    squares = [sum(map(mul, g, g)) for g in items]
    out = []
    for i, q in enumerate(whole[: len(query)]):
        # ‖q − g‖² without ‖q‖², which is the same for all items.
        distance = [s - 2 * sum(map(mul, q, g)) for s, g in zip(squares, items, strict=True)]
        order = sorted(range(len(items)), key=lambda j: (distance[j], j))
        out.append([j for j in order if not (own and i == j)])
    return out


def naive_metrics(
    order: list[list[int]], labels: Tensor, classes: Tensor, ks: tuple[int, ...]
) -> dict[str, float]:
    """The metrics as their definitions read, of queries with ``labels`` ranked as in ``order``."""
    others = classes.tolist()
    sums: dict[str, float] = {}
    counted = 0
    for label, items in zip(labels.tolist(), order, strict=True):
        hits = [others[j] == label for j in items]
        total = sum(hits)
        if not total:
            continue
        counted += 1
        values = {"precision_at_1": float(hits[0])}
        values |= {f"recall_at_{k}": float(any(hits[:k])) for k in ks}
        values["r_precision"] = sum(hits[:total]) / total
        values["mean_average_precision_at_r"] = (
            sum(sum(hits[:k]) / k for k in range(1, total + 1) if hits[k - 1]) / total
        )
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
    out = {name: value / counted for name, value in sums.items()}
    return out | {"queries": counted, "queries_without_match": len(labels) - counted}


@dataclass(frozen=True)
class Case:
    """Vectors and labels; without a gallery the queries are searched among themselves."""

    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None
    ks: tuple[int, ...] = (1, 2, 4, 8)

    def order(self) -> list[list[int]]:
        """The gallery as each query ranks it."""
        own = self.gallery is None
        return ranked(self.query, self.query if self.gallery is None else self.gallery, own)

    def truth(self, order: list[list[int]]) -> dict[str, float]:
        """The metrics, given the order."""
        classes = self.query_labels if self.gallery_labels is None else self.gallery_labels
        return naive_metrics(order, self.query_labels, classes, self.ks)


def _drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _labels(count: int, classes: int, seed: int = 1) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)


def _clusters() -> Case:
    labels = _labels(260, 12)
    return Case(_unit(_drawn(12, 8, seed=2)[labels] + 0.6 * _drawn(260, 8)), labels)


def _copies() -> Case:
    # Ten copies of each vector, under several labels: copies at distance 0 everywhere.
    return Case(_unit(_drawn(26, 8)).repeat(10, 1), _labels(260, 6))


CASES: dict[str, Callable[[], Case]] = {
    # Every similarity to a far query is negative.
    "negative similarities": lambda: Case(_unit(_drawn(260, 8)), _labels(260, 20)),
    "clusters": _clusters,
    "singletons": lambda: Case(_drawn(260, 8), torch.cat([torch.arange(200), _labels(60, 10)])),
    "one class": lambda: Case(_drawn(257, 8), torch.full((257,), 3)),
    "labels above 2^24": lambda: Case(_drawn(256, 8), 2**24 + _labels(256, 30)),
    "labels above 2^53": lambda: Case(_drawn(256, 8), 2**60 + _labels(256, 30)),
    "negative labels": lambda: Case(_drawn(256, 8), -_labels(256, 9)),
    "query and gallery": lambda: Case(
        _unit(_drawn(70, 8)), _labels(70, 40), _unit(_drawn(260, 8, seed=5)), _labels(260, 30, 6)
    ),
    "far norms": lambda: Case(_drawn(260, 8) * _drawn(260, 1, seed=8).exp(), _labels(260, 10)),
    "many ties": lambda: Case(_drawn(260, 3).round(), _labels(260, 8)),
    "binary codes": lambda: Case(_drawn(260, 12).sign(), _labels(260, 8)),
    "ties, query and gallery": lambda: Case(
        _drawn(60, 2).round(), _labels(60, 5), _drawn(260, 2, seed=4).round(), _labels(260, 5, 9)
    ),
    "copies": _copies,
    "collapsed": lambda: Case(_unit(_drawn(1, 8)).repeat(260, 1), _labels(260, 5)),
    "nearly collapsed": lambda: Case(1 + 1e-6 * _drawn(260, 8), _labels(260, 5)),
    "half of them zero": lambda: Case(
        torch.where(torch.arange(260)[:, None] % 2 > 0, _drawn(260, 7), 0.0), _labels(260, 9)
    ),
    "double precision": lambda: Case(
        1 + 1e-12 * _drawn(260, 9).double(), _labels(260, 7), ks=(1, 3)
    ),
    "one dimension": lambda: Case(_drawn(260, 1), _labels(260, 7)),
    "tiny numbers": lambda: Case(1e-30 * _drawn(260, 5), _labels(260, 7)),
    "huge numbers": lambda: Case(1e30 * _drawn(260, 5), _labels(260, 7)),
    "two items": lambda: Case(_drawn(2, 5), torch.tensor([4, 4]), ks=(1,)),
}


#: Of the files whose tests share what is solved: they run in one process.
together = pytest.mark.xdist_group("ranking")


@cache
def solved(name: str) -> tuple[Case, list[list[int]]]:
    """One of ``CASES`` and the order of its gallery for each query."""
    case = CASES[name]()
    return case, case.order()


#: Ways to the same result, each as settings of the modules and arguments of the call.
WAYS: dict[str, dict[str, Any]] = {
    "searched": {},
    "searched in small batches": {"max_memory": 200_000},
    "scanned": {"scan": True},
    "through faiss": {"backend": "faiss"},
    "ranked": {"searched": 0},
    "ranked in small batches": {"searched": 0, "max_memory": 400_000},
    "searched and ranked": {"searched": 12},
}


@contextmanager
def way(name: str) -> Iterator[dict[str, Any]]:
    """Take one of ``WAYS``; gives the arguments of the call."""
    settings = dict(WAYS[name])
    if settings.get("backend") == "faiss":
        pytest.importorskip("faiss")
    with pytest.MonkeyPatch.context() as patch:
        if settings.pop("scan", False):
            # Panels of one strip: the smallest that make several.
            patch.setattr(scan, "_FIRST", 64)
            patch.setattr(scan, "_PANEL", 64)
        if "searched" in settings:
            patch.setattr(metrics, "_SEARCHED", settings.pop("searched"))
        yield {"max_memory": MAX_MEMORY} | settings
