"""Exact nearest neighbors in bounded memory.

A float32 product finds candidates, a few more than requested. Its error is bounded: for most
queries no other item can be among the nearest, and candidates whose order is undecided are compared
by the exact formula. The remaining rows, full of ties, are computed exactly as a whole. The result
does not depend on backend, device or memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from sumpool.evaluation.comparison import Comparison
from sumpool.evaluation.inputs import MAX_MEMORY, ArrayLike, as_comparison, check_k, check_search
from sumpool.evaluation.scan import applies, scan
from sumpool.evaluation.search import Advance, batches, direct, float32_products, through_faiss


@torch.no_grad()
def nearest_neighbors(
    query: ArrayLike,
    gallery: ArrayLike | None,
    k: int,
    *,
    exclude_self: bool = False,
    backend: str = "auto",
    max_memory: int = MAX_MEMORY,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Find the k gallery items nearest to each query in Euclidean distance, nearest first.

    The order is that of the squared distances in float64, each computed from its pair of vectors
    alone and by the same formula; ties are broken by the lower index. It is the same for all
    backends, devices and memory limits.

    Args:
        query: Vectors of shape (Q, d), a torch tensor or numpy array. They are searched on their
            device, without gradients.
        gallery: Vectors of shape (G, d); None is the query set itself.
        k: Number of neighbors, at most G, or G − 1 with ``exclude_self``.
        exclude_self: Whether item i of the gallery is query i and must not be retrieved by it.
            Copies of it may be.
        backend: "torch", or "faiss" for the search of candidates on the CPU; "auto" is "torch".
        max_memory: Bytes of working memory, in addition to the result and copies of the vectors.
        progress: Whether to show a progress bar.

    Returns:
        Similarities 1 − ½ ‖q − g‖², float32, in descending order, which are cosines for unit
        vectors, and gallery indices, int64; both of shape (Q, k) and on the device of the query.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0], [1.0]])
        >>> similarities, indices = nearest_neighbors(points, None, 2, exclude_self=True)
        >>> indices
        tensor([[1, 3], [3, 0], [1, 3], [1, 0]])
        >>> similarities[0]
        tensor([0.5000, 0.5000])
    """
    check_search(backend, max_memory)
    comparison = as_comparison(query, gallery, exclude_self)
    check_k("k", k, comparison.available)
    k = int(k)
    rows = torch.arange(len(comparison.query), device=comparison.query.device)
    with (
        float32_products(rows.device),
        tqdm(total=len(rows), desc="neighbors", unit="query", disable=not progress) as bar,
    ):
        found = nearest(comparison, rows, k, backend, max_memory, bar.update)
    similarities = torch.empty(found.shape, device=found.device)
    for batch in batches(rows, 64 * k, max_memory):
        scores = comparison.pair_scores(batch.repeat_interleave(k), found[batch].view(-1))
        similarities[batch] = (1 + scores / comparison.scale / comparison.scale).float().view(-1, k)
    return similarities, found


def nearest(
    comparison: Comparison, rows: Tensor, k: int, backend: str, max_memory: int, advance: Advance
) -> Tensor:
    """Return gallery indices of the k nearest items to the queries ``rows``, (n, k), in order."""
    found = torch.empty(len(rows), k, dtype=torch.int64, device=rows.device)
    left = torch.arange(len(rows), device=rows.device)  # places in `rows` still to be filled
    extra = 3 + k // 16
    for spare in (extra, 16 * extra):
        wide = min(k + spare, comparison.available)
        scores, index = _candidates(comparison, rows[left], wide, backend, max_memory, advance)
        # No other item scores above the last candidate.
        doubt = 2 * comparison.coarse.error
        sure = scores[:, k - 1] - scores[:, -1] > doubt
        if wide == comparison.available:
            sure[:] = True
        for part in batches(sure.nonzero()[:, 0], 64 * wide, max_memory):
            place = left[part]
            ordered = settle(comparison.pair_scores, rows[place], scores[part], index[part], doubt)
            found[place] = ordered[:, :k]
        left = left[~sure]
        if not len(left):
            return found
        advance = _silent
    for part in batches(left, 64 * len(comparison.gallery), max_memory):
        found[part] = _nearest_exactly(comparison, rows[part], k)
    return found


def _candidates(
    comparison: Comparison, rows: Tensor, k: int, backend: str, max_memory: int, advance: Advance
) -> tuple[Tensor, Tensor]:
    if backend == "faiss":
        return through_faiss(comparison, rows, k, max_memory, advance)
    # The scan covers all queries at once; it pays off even for half of them.
    if 2 * len(rows) > len(comparison.query) and applies(comparison, k, max_memory):
        scores, index = scan(comparison, k, len(rows), advance)
        return scores[rows], index[rows]
    return direct(comparison, rows, k, max_memory, advance)


def settle(
    pair_scores: Callable[[Tensor, Tensor], Tensor],
    rows: Tensor,
    scores: Tensor,
    index: Tensor,
    doubt: float,
) -> Tensor:
    """Return candidates in their exact order, (n, k).

    ``scores`` are approximate, descending, of the queries ``rows`` (n,) with the gallery items
    ``index`` (n, k). Those that differ by at most ``doubt`` may be in the wrong order, which
    ``pair_scores``, the exact scores of queries (p,) with items (p,), corrects.
    """
    near = scores[:, :-1] - scores[:, 1:] <= doubt
    unsure = F.pad(near, (0, 1)) | F.pad(near, (1, 0))
    row, place = unsure.nonzero(as_tuple=True)
    if not len(row):
        return index
    exact = scores.double()
    if doubt > 0:
        exact[row, place] = pair_scores(rows[row], index[row, place])
    touched = unsure.any(1).nonzero()[:, 0]
    # By index first: the stable sort by score then keeps ties in that order.
    by_index, at = index[touched].sort(dim=1)
    order = exact[touched].gather(1, at).argsort(dim=1, descending=True, stable=True)
    index = index.clone()
    index[touched] = by_index.gather(1, order)
    return index


def _nearest_exactly(comparison: Comparison, rows: Tensor, k: int) -> Tensor:
    """The k nearest from exact scores with the whole gallery, (n, k)."""
    scores = exact_rows(comparison, rows)
    bar = scores.topk(k, dim=1).values[:, -1:]
    above, level = scores > bar, scores == bar
    # Of the items at the bar, the first ones fill the remaining places.
    chosen = above | (level & (level.cumsum(1) <= k - above.sum(1, keepdim=True)))
    place = chosen.nonzero()[:, 1].view(len(rows), k)
    order = scores.gather(1, place).argsort(dim=1, descending=True, stable=True)
    return place.gather(1, order)


def exact_rows(comparison: Comparison, rows: Tensor) -> Tensor:
    """Return exact scores with the whole gallery, (n, G); −∞ for the query itself."""
    scores = comparison.row_scores(rows)
    if comparison.own:
        scores[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
    return scores


def _silent(_: int) -> None:
    pass
