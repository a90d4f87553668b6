"""Candidates for the nearest neighbors: the largest scores of a float32 product.

There are three ways to the same result: ``direct`` computes rows of the score matrix batch by
batch, :func:`~sumpool.evaluation.scan.scan` computes only one half of a symmetric matrix, and
``through_faiss`` uses faiss. Their results are checked by :mod:`sumpool.evaluation.neighbors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sumpool.evaluation.comparison import STRIP, Comparison

#: Called with the number of queries finished since the last call.
Advance = Callable[[int], Any]

#: Below this number of columns, strips do not pay off.
_LONG_ROW = 8192


@contextmanager
def float32_products(device: torch.device) -> Iterator[None]:
    """Compute float32 products in full precision, on which the error bounds rely."""
    cpu = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    settings = (torch.backends.cuda.matmul, cpu)
    before = [it.fp32_precision for it in settings]
    try:
        for it in settings:
            it.fp32_precision = "ieee"
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for it, value in zip(settings, before, strict=True):
            it.fp32_precision = value


def batches(rows: Tensor, bytes_per_row: int, max_memory: int) -> Iterator[Tensor]:
    """Yield ``rows`` in batches whose work fits into ``max_memory``, but at least one at a time."""
    step = max(1, max_memory // max(1, bytes_per_row))
    # Even batches, so that the last one is not small.
    count = -(-len(rows) // step)
    step = -(-len(rows) // max(1, count))
    for start in range(0, len(rows), max(1, step)):
        yield rows[start : start + step]


def direct(
    comparison: Comparison, rows: Tensor, k: int, max_memory: int, advance: Advance
) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of some queries.

    Returns:
        Scores, float32, largest first, and their gallery indices, int64; both (n, k).
    """
    device = comparison.query.device
    scores = torch.empty(len(rows), k, device=device)
    index = torch.empty(len(rows), k, dtype=torch.int64, device=device)
    done = 0
    for batch, product in products(comparison, rows, k, max_memory):
        if comparison.own:
            product[torch.arange(len(batch), device=device), batch] = -torch.inf
        part = slice(done, done + len(batch))
        done += len(batch)
        scores[part], index[part] = largest(product, k)
        advance(len(batch))
    return scores, index


def products(
    comparison: Comparison, rows: Tensor, k: int, max_memory: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the scores of ``rows`` in batches: the queries (b,), and their product (b, G')."""
    left, right, _ = comparison.coarse
    width = right.shape[1]
    every = comparison.symmetric and len(rows) == len(left)
    if every and left.device.type == "cpu" and 5 * len(left) * width <= max_memory:
        yield rows, mirrored(left, right)
        return
    # Memory for the product, a spare copy, strip maxima, and the candidates with their indices.
    for batch in batches(rows, 12 * width + 16 * k * STRIP, max_memory):
        yield batch, left[batch] @ right


def mirrored(left: Tensor, right: Tensor) -> Tensor:
    """Return a symmetric product, (n, n'), n' ≥ n, by computing one half of it."""
    n, step = len(left), 1024
    out = torch.empty(n, right.shape[1])
    for a in range(0, n, step):
        b = min(a + step, n)
        torch.mm(left[a:b], right[:, a:], out=out[a:b, a:])
        out[b:, a:b] = out[a:b, b:n].t()
    return out


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest numbers of each row in descending order, and their indices.

    On a CPU, long rows are first reduced to the maxima of strips: the k strips with the largest
    maxima contain the k largest numbers.
    """
    n, width = scores.shape
    strips = width // STRIP
    if scores.device.type != "cpu" or width < _LONG_ROW or width % STRIP or strips < 4 * k:
        return scores.topk(k, dim=1)
    best = scores.view(n, strips, STRIP).amax(-1).topk(k, dim=1, sorted=False).indices  # (n, k)
    start = torch.arange(0, n * strips, strips)
    held = scores.view(-1, STRIP).index_select(0, (best + start[:, None]).view(-1))
    values, place = held.view(n, k * STRIP).topk(k, dim=1)
    return values, best.gather(1, place // STRIP) * STRIP + place % STRIP


def through_faiss(
    comparison: Comparison, rows: Tensor, k: int, max_memory: int, advance: Advance
) -> tuple[Tensor, Tensor]:
    """Like :func:`direct`, with faiss's exhaustive search on the CPU."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "backend='faiss' needs faiss: install sumpool[faiss], or choose backend='torch'"
        ) from error
    left, right, _ = comparison.coarse
    d = left.shape[1] - 2
    gallery = right[:d, : len(comparison.gallery)].t().contiguous().cpu().numpy()
    index = faiss.IndexFlatL2(d)
    index.add(gallery)
    scores = torch.empty(len(rows), k)
    places = torch.empty(len(rows), k, dtype=torch.int64)
    done = 0
    more = k + int(comparison.own)
    for batch in batches(rows.cpu(), 64 * more, max_memory):
        part = slice(done, done + len(batch))
        done += len(batch)
        answer = index.search(left[batch.to(left.device), :d].cpu().numpy(), more)
        squared, found = (torch.from_numpy(array) for array in answer)
        if comparison.own:
            squared, found = without(squared, found, batch)
        scores[part], places[part] = squared.mul(-0.5), found
        advance(len(batch))
    return scores.to(left.device), places.to(left.device)


def without(squared: Tensor, found: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the query itself from each row of neighbors, or the last neighbor if it is absent."""
    keep = found != own[:, None]
    keep[keep.all(1), -1] = False
    return squared[keep].view(len(own), -1), found[keep].view(len(own), -1)
