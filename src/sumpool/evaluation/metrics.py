"""Retrieval metrics: P@1, R@K, R-precision and MAP@R, exact and in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sumpool.evaluation.comparison import Comparison
from sumpool.evaluation.inputs import (
    MAX_MEMORY,
    ArrayLike,
    as_comparison,
    as_labels,
    check_k,
    check_ks,
    check_search,
)
from sumpool.evaluation.neighbors import nearest
from sumpool.evaluation.ranking import ranked_hits
from sumpool.evaluation.search import batches, float32_products
from sumpool.system.wording import counted

#: Up to this many ranks, neighbors are searched; for more, whole rows are sorted.
_SEARCHED = 128


class QueryScores(NamedTuple):
    """Scores of each query; a query without a match has NaN and rank 0.

    Attributes:
        matches: R, the number of other gallery items of the query's class, int64.
        first_match: The rank of the first match, int64; 0 if none is among the first max(R, K).
        r_precision: The share of matches among the first R, float64.
        average_precision: (1/R) Σ_{k ≤ R} [k is a match] P@k, float64.
    """

    matches: Tensor
    first_match: Tensor
    r_precision: Tensor
    average_precision: Tensor


@torch.no_grad()
def retrieval_metrics(
    query: ArrayLike,
    query_labels: ArrayLike,
    gallery: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    max_memory: int = MAX_MEMORY,
    backend: str = "auto",
    progress: bool = False,
) -> dict[str, float]:
    """Measure how well items of a query's class are retrieved from a gallery [reality-check].

    The gallery is ranked by Euclidean distance to the query, which for unit vectors is the order of
    cosines; ties are broken by the lower index (see :func:`nearest_neighbors` for what counts as a
    tie). R is the number of *other* gallery items of the query's class. Without a gallery, the
    queries are searched among themselves: a query never retrieves itself, but may retrieve a copy
    at distance 0. Queries with R = 0 are left out and counted.

    Args:
        query: Embeddings of shape (Q, d), a torch tensor or numpy array, whose device is used.
        query_labels: Their classes, integers of shape (Q,); compared as int64.
        gallery: Embeddings of shape (G, d), without the queries; None searches the query set.
        gallery_labels: Their classes, (G,).
        ks: The numbers K of R@K, each at most the number of items a query can retrieve.
        max_memory: Bytes of working memory, in addition to copies of the embeddings.
        backend: Backend of the neighbor search, "torch" or "faiss"; "auto" is "torch". Queries that
            need more than 128 ranks are always ranked by torch. Results are the same.
        progress: Whether to show a progress bar.

    Returns:
        Means over the queries with a match: ``precision_at_1``; ``recall_at_{K}``, the share of
        queries with a match among the first K; ``r_precision``, the share of matches among the
        first R; ``mean_average_precision_at_r``, (1/R) Σ_{k ≤ R} [k is a match] P@k. Also
        ``queries``, their number, and ``queries_without_match``, the number left out.

    Raises:
        ValueError: If no query has a match, or an argument is invalid.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0], [3.5], [9.0]])
        >>> metrics = retrieval_metrics(points, torch.tensor([7, 7, 7, 8, 5]), ks=(1, 2))
        >>> for name, value in metrics.items():
        ...     print(f"{name:28}{value:.4g}")
        precision_at_1              0.6667
        recall_at_1                 0.6667
        recall_at_2                 1
        r_precision                 0.8333
        mean_average_precision_at_r 0.75
        queries                     3
        queries_without_match       2
    """
    comparison, labels, others = _inputs(query, query_labels, gallery, gallery_labels)
    ks = check_ks(ks, comparison.available)
    scores = _score(comparison, labels, others, max((1, *ks)), max_memory, backend, progress)
    matched = scores.matches > 0
    queries = int(matched.sum())
    if not queries:
        raise ValueError(
            f"none of the {counted(len(labels), 'query', 'queries')} has a match: no other "
            "gallery item is of its class, so no metric is defined"
        )
    first = scores.first_match[matched]
    recall = {k: ((first > 0) & (first <= k)).double().mean().item() for k in {1, *ks}}
    return {
        "precision_at_1": recall[1],
        **{f"recall_at_{k}": recall[k] for k in ks},
        "r_precision": scores.r_precision[matched].mean().item(),
        "mean_average_precision_at_r": scores.average_precision[matched].mean().item(),
        "queries": queries,
        "queries_without_match": len(labels) - queries,
    }


@torch.no_grad()
def score_queries(
    query: ArrayLike,
    query_labels: ArrayLike,
    gallery: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    *,
    depth: int = 1,
    max_memory: int = MAX_MEMORY,
    backend: str = "auto",
    progress: bool = False,
) -> QueryScores:
    """Compute the terms of :func:`retrieval_metrics` for each query, to find the best and worst.

    The arguments are the same, except that ``depth`` replaces ``ks``: the minimum number of ranks
    in which the first match is searched.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0], [3.5], [9.0]])
        >>> score_queries(points, torch.tensor([7, 7, 7, 8, 5])).average_precision
        tensor([1.0000, 1.0000, 0.2500, nan, nan], dtype=torch.float64)
    """
    comparison, labels, others = _inputs(query, query_labels, gallery, gallery_labels)
    check_k("depth", depth, comparison.available)
    return _score(comparison, labels, others, depth, max_memory, backend, progress)


def _inputs(
    query: ArrayLike,
    query_labels: ArrayLike,
    gallery: ArrayLike | None,
    gallery_labels: ArrayLike | None,
) -> tuple[Comparison, Tensor, Tensor]:
    check_gallery([query], None if gallery is None else [gallery], gallery_labels)
    comparison = as_comparison(query, gallery, own=gallery is None)
    device = comparison.query.device
    labels = as_labels("query_labels", query_labels, len(comparison.query), device)
    if gallery_labels is None:
        return comparison, labels, labels
    others = as_labels("gallery_labels", gallery_labels, len(comparison.gallery), device)
    return comparison, labels, others


def check_gallery(
    query: Sequence[ArrayLike],
    gallery: Sequence[ArrayLike] | None,
    gallery_labels: ArrayLike | None,
) -> None:
    """Check that a gallery, in parts, comes with labels and is not the query set."""
    if gallery is None and gallery_labels is not None:
        raise ValueError("gallery must be given with gallery_labels, got None")
    if gallery is not None and gallery_labels is None:
        raise ValueError("gallery_labels must be given with gallery, got None")
    if gallery is not None and any(map(_same_memory, query, gallery)):
        raise ValueError(
            "gallery must be left out where it is the query set itself, or every query would "
            "retrieve itself"
        )


def _same_memory(query: ArrayLike, gallery: ArrayLike) -> bool:
    addresses = [
        it.data_ptr() if isinstance(it, Tensor) else it.__array_interface__["data"][0]
        for it in (query, gallery)
        if isinstance(it, Tensor | np.ndarray)  # others are refused later
    ]
    return (
        len(addresses) == 2
        and addresses[0] == addresses[1]
        and np.shape(query) == np.shape(gallery)
    )


def _score(
    comparison: Comparison,
    labels: Tensor,
    others: Tensor,
    depth: int,
    max_memory: int,
    backend: str,
    progress: bool,
) -> QueryScores:
    check_search(backend, max_memory)
    matches = count_matches(labels, others) - int(comparison.own)
    need = matches.clamp(min=depth)
    first = torch.zeros_like(matches)
    r_precision = torch.full(matches.shape, torch.nan, dtype=torch.float64, device=labels.device)
    average = r_precision.clone()

    def score(rows: Tensor, hits: Tensor) -> None:
        found, r_precision[rows], average[rows] = score_hits(hits, matches[rows])
        first[rows] = found.where(found <= need[rows], 0)  # the batch may be searched deeper

    few = ((matches > 0) & (need <= _SEARCHED)).nonzero()[:, 0]
    many = ((matches > 0) & (need > _SEARCHED)).nonzero()[:, 0]
    many = many[need[many].argsort(stable=True)]  # rows of one batch are cut at the same depth
    total = len(few) + len(many)
    with (
        float32_products(labels.device),
        tqdm(total=total, desc="retrieval", unit="query", disable=not progress) as bar,
    ):
        if len(few):
            k = int(need[few].max())
            found = nearest(comparison, few, k, backend, max_memory, bar.update)
            for batch in batches(torch.arange(len(few), device=few.device), 64 * k, max_memory):
                rows = few[batch]
                score(rows, others[found[batch]] == labels[rows, None])
        for rows in batches(many, 64 * len(others), max_memory):
            hits = labels[rows, None] == others  # (b, G)
            score(rows, ranked_hits(comparison, rows, hits, int(need[rows].max())))
            bar.update(len(rows))
    return QueryScores(matches, first, r_precision, average)


def count_matches(labels: Tensor, others: Tensor) -> Tensor:
    """Count how many of ``others`` equal each of ``labels``, int64 of the shape of ``labels``."""
    ordered = others.sort().values
    upper = torch.searchsorted(ordered, labels, right=True)
    return upper - torch.searchsorted(ordered, labels)


def score_hits(hits: Tensor, matches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return first-match rank (0: none), R-precision and average precision at R of each query.

    Args:
        hits: Whether the item at each rank is a match, (n, depth), depth ≥ R.
        matches: R, at least 1, (n,).
    """
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    first = torch.where(hits.any(1), hits.int().argmax(1) + 1, 0)
    hits = hits & (rank <= matches[:, None])
    found = hits.cumsum(1)
    precision = (found / rank.double()).mul_(hits).sum(1)
    return first, found[:, -1] / matches.double(), precision / matches
