"""Hits at the first ranks, for queries with many matches.

With R in the thousands, a list of R neighbors for each query would exhaust memory, and float32
could not order it. Rows of the score matrix are therefore computed in float64, sorted without their
indices, and discarded: the last bit of each number marks matches.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.evaluation.comparison import NOWHERE, Comparison
from sumpool.evaluation.neighbors import exact_rows


def ranked_hits(comparison: Comparison, rows: Tensor, matches: Tensor, depth: int) -> Tensor:
    """Return whether the items at the first ``depth`` ranks are matches, (n, depth).

    ``matches`` (n, G), overwritten, marks the gallery items that match the queries ``rows`` (n,).
    """
    fine = comparison.fine
    scores = fine.left[rows] @ fine.right[:, : len(comparison.gallery)]
    if comparison.own:
        own = torch.arange(len(rows), device=rows.device), rows
        scores[own] = NOWHERE
        matches[own] = False
    # The change is covered by the slack in the error bound.
    scores.view(torch.int64).bitwise_and_(-2).bitwise_or_(matches)
    # One more than requested: whether the last rank is certain depends on it.
    top = _largest(scores, min(depth + 1, comparison.available))
    hits = top.view(torch.int64).bitwise_and(1).bool()
    close = top[:, :-1] - top[:, 1:] <= 2 * fine.error + 1e-15
    # Only a match next to a non-match can change anything; what follows the last rank is unknown.
    close[:, : depth - 1] &= hits[:, 1:depth] != hits[:, : depth - 1]
    hits = hits[:, :depth]
    unsure = close.any(1).nonzero()[:, 0]
    for part in unsure.split(max(1, len(rows) // 4)):
        exact = exact_rows(comparison, rows[part])
        # Stable, so that ties are broken by the lower index.
        order = exact.argsort(dim=1, descending=True, stable=True)[:, :depth]
        hits[part] = matches[part].gather(1, order)
    return hits


def _largest(scores: Tensor, count: int) -> Tensor:
    """Return the ``count`` largest numbers of each row, descending; ``scores`` is overwritten."""
    if scores.device.type != "cpu":
        return scores.topk(count, dim=1).values
    rest = scores.shape[1] - count

    def sort(part: NDArray[np.float64]) -> None:
        part.partition(rest, axis=1)
        part[:, rest:].sort(axis=1)

    # numpy sorts numbers several times faster than torch, which also sorts their indices.
    parts = np.array_split(scores.numpy(), min(len(scores), torch.get_num_threads()))
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(sort, parts))
    return scores[:, rest:].flip(1)
