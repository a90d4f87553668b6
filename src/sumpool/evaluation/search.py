"""Candidates for the nearest neighbors: the largest scores as a float32 product has them.

Three ways to the same result: ``direct`` takes rows of the score matrix one batch after the other,
:func:`~sumpool.evaluation.scan.scan` computes only one half of a symmetric matrix, and
``through_faiss`` asks faiss. What they return is checked by :mod:`sumpool.evaluation.neighbors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sumpool.evaluation.comparison import STRIP, Comparison

#: Called with the number of queries that were finished since the last call.
Advance = Callable[[int], Any]

#: Below this many columns, strips do not pay.
_LONG_ROW = 8192


@contextmanager
def float32_products(device: torch.device) -> Iterator[None]:
    """Float32 products in float32, whatever has been allowed; the bounds on errors rest on it."""
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
    """``rows`` in batches whose work fits into ``max_memory``; one row is always allowed."""
    step = max(1, max_memory // max(1, bytes_per_row))
    # Even batches: the last one is not a small rest.
    count = -(-len(rows) // step)
    step = -(-len(rows) // max(1, count))
    for start in range(0, len(rows), max(1, step)):
        yield rows[start : start + step]


def direct(
    comparison: Comparison, rows: Tensor, k: int, max_memory: int, advance: Advance
) -> tuple[Tensor, Tensor]:
    """The k largest scores of some queries, row by row.

    Returns:
        Scores, float32, largest first, and the gallery indices they belong to, int64; both (n, k).
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
    """The scores of ``rows`` in batches: the queries (b,), and their product (b, G')."""
    left, right, _ = comparison.coarse
    width = right.shape[1]
    every = comparison.symmetric and len(rows) == len(left)
    if every and left.device.type == "cpu" and 5 * len(left) * width <= max_memory:
        yield rows, mirrored(left, right)
        return
    # Besides the product: its strips' maxima, the candidates with their places, a spare copy.
    for batch in batches(rows, 12 * width + 16 * k * STRIP, max_memory):
        yield batch, left[batch] @ right


def mirrored(left: Tensor, right: Tensor) -> Tensor:
    """A symmetric product of which one half is computed, (n, n'), n' ≥ n."""
    n, step = len(left), 1024
    out = torch.empty(n, right.shape[1])
    for a in range(0, n, step):
        b = min(a + step, n)
        torch.mm(left[a:b], right[:, a:], out=out[a:b, a:])
        out[b:, a:b] = out[a:b, b:n].t()
    return out


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest numbers of each row in falling order, and their places.

    On a CPU, long rows are first reduced to the maxima of strips: the k strips with the largest
    maxima hold the k largest numbers.
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
    """The same as :func:`direct` with faiss's exhaustive search, which runs on the CPU."""
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
    """Rows of neighbors without the query itself; where it is not there, without the last one."""
    keep = found != own[:, None]
    keep[keep.all(1), -1] = False
    return squared[keep].view(len(own), -1), found[keep].view(len(own), -1)
