"""All nearest neighbors within one set, from one half of its symmetric score matrix (CPU).

The matrix is processed in blocks. A block serves both its rows and its columns, and only scores
above the k-th best so far of their row or column are examined: the maxima of strips locate them.
Points are shuffled first, so that whatever their order, a row has about k ln(n/k) such scores among
its n.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.evaluation.comparison import STRIP, Comparison
from sumpool.evaluation.search import Advance, largest

#: Points in the first panel, which initializes every row, and in the others.
_FIRST, _PANEL = 4096, 2048

Array = NDArray[np.generic]


def applies(comparison: Comparison, k: int, max_memory: int) -> bool:
    """Whether :func:`scan` finds k candidates faster than rows of the full matrix would."""
    points = len(comparison.gallery)
    return (
        comparison.symmetric
        and comparison.own
        and comparison.query.device.type == "cpu"
        and k <= STRIP
        and points >= 4 * _FIRST
        and points * k * 8 + 16 * _FIRST * _PANEL <= max_memory
    )


def scan(comparison: Comparison, k: int, wanted: int, advance: Advance) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of every point with the others, and their indices; (n, k) each.

    ``advance`` is called with progress that adds up to ``wanted``.
    """
    points = len(comparison.gallery)
    order = torch.randperm(points, generator=torch.Generator().manual_seed(0))
    state = _Scan(comparison, order, k)
    bounds = [(0, _FIRST)]
    bounds += [(a, min(a + _PANEL, points)) for a in range(_FIRST, points, _PANEL)]
    for i, panel in enumerate(bounds):
        if i == 0:
            state.start(bounds)
        else:
            for rows in bounds[i:]:
                state.meet(rows, panel)
        advance(panel[1] * wanted // points - panel[0] * wanted // points)
    scores = torch.empty(points, k)
    index = torch.empty(points, k, dtype=torch.int64)
    scores[state.order] = state.best
    index[state.order] = state.index.long()
    return scores, index


class _Scan:
    """The state of a scan."""

    def __init__(self, comparison: Comparison, order: Tensor, k: int) -> None:
        left, right, _ = comparison.coarse
        self.order = order  # the point at each place
        # The factors in that order, (n, d + 2) and (d + 2, n'), the right one padded to strips.
        self.left, self.right = left[order], right.clone()
        self.right[:, : len(order)] = right[:, order]
        # The k best scores of each place in descending order, and their points, (n, k).
        self.best = torch.full((len(order), k), -torch.inf)
        self.index = torch.zeros(len(order), k, dtype=torch.int32)
        self.buffer = torch.empty(_PANEL * _FIRST)

    def start(self, bounds: list[tuple[int, int]]) -> None:
        """Initialize the best scores of all rows from the first panel."""
        first = bounds[0]
        for a, b in [(a, min(a + _PANEL, first[1])) for a in range(0, first[1], _PANEL)]:
            product = self.product((a, b), first)
            product[:, a:b].fill_diagonal_(-torch.inf)
            self.take(a, b, product)
        self.sort(first)
        for a, b in bounds[1:]:
            product = self.product((a, b), first)
            self.take(a, b, product)
            self.offer(product, (a, b), first, to_rows=False)
            self.sort((a, b))

    def meet(self, rows: tuple[int, int], panel: tuple[int, int]) -> None:
        """Offer the scores of ``rows`` with ``panel`` to both."""
        product = self.product(rows, panel)
        if rows == panel:
            product.fill_diagonal_(-torch.inf)
        self.offer(product, rows, panel, to_rows=True)

    def product(self, rows: tuple[int, int], panel: tuple[int, int]) -> Tensor:
        """Compute a block of scores in the buffer, padded to full strips."""
        right = self.right[:, panel[0] : panel[0] + -(-(panel[1] - panel[0]) // STRIP) * STRIP]
        out = self.buffer[: (rows[1] - rows[0]) * right.shape[1]].view(-1, right.shape[1])
        return torch.mm(self.left[rows[0] : rows[1]], right, out=out)

    def take(self, a: int, b: int, product: Tensor) -> None:
        """Initialize the best scores of rows a to b."""
        self.best[a:b], place = largest(product, self.best.shape[1])
        self.index[a:b] = self.order[place]

    def sort(self, panel: tuple[int, int]) -> None:
        """Sort a panel by its thresholds, so that those in one strip are nearly equal."""
        part = slice(*panel)
        by = self.best[part, -1].argsort()
        for held in (self.order, self.left, self.best, self.index):
            held[part] = held[part][by]
        self.right[:, part] = self.right[:, part][:, by]

    def offer(
        self, product: Tensor, rows: tuple[int, int], panel: tuple[int, int], *, to_rows: bool
    ) -> None:
        """Find the scores above a threshold and merge them into the best of their owners."""
        n, strips = len(product), product.shape[1] // STRIP
        to_columns = rows != panel
        row_bar = self.best[slice(*rows), -1].numpy()
        column_bar = np.full((strips, STRIP), np.inf, dtype=np.float32)
        column_bar.reshape(-1)[: panel[1] - panel[0]] = self.best[slice(*panel), -1].numpy()
        bar = column_bar.min(1) if to_columns else np.full(strips, np.inf, dtype=np.float32)
        bars = np.minimum(row_bar[:, None], bar) if to_rows else bar[None]
        maxima = product.view(n, strips, STRIP).amax(-1).numpy()
        where = np.flatnonzero(maxima > bars)
        row, strip = np.divmod(where, strips)
        held = product.view(-1, STRIP).numpy().take(where, 0)  # (h, STRIP)
        order = self.order.numpy()
        if to_rows:
            hit = np.flatnonzero(held > row_bar[row][:, None])
            at, offset = np.divmod(hit, STRIP)
            column = strip[at] * STRIP + offset
            self.merge(rows[0], row[at], order[panel[0] + column], held.reshape(-1)[hit])
        if to_columns:
            hit = np.flatnonzero(held > column_bar.take(strip, 0))
            at, offset = np.divmod(hit, STRIP)
            column = strip[at] * STRIP + offset
            by = column.argsort(kind="stable")
            self.merge(
                panel[0], column[by], order[rows[0] + row[at[by]]], held.reshape(-1)[hit[by]]
            )

    def merge(self, base: int, owners: Array, points: Array, scores: Array) -> None:
        """Merge offered scores into the k best of rows ``base + owners``; owners are ascending."""
        if not len(owners):
            return
        k = self.best.shape[1]
        new = np.concatenate(([True], owners[1:] != owners[:-1]))
        first = np.flatnonzero(new)
        line = np.cumsum(new) - 1
        width = k + int(np.diff(first, append=len(owners)).max())
        place = line * width + k + np.arange(len(owners)) - first[line]
        touched = torch.from_numpy(base + owners[first])
        best = torch.full((len(touched), width), -torch.inf)
        index = torch.zeros(len(touched), width, dtype=torch.int32)
        best[:, :k], index[:, :k] = self.best[touched], self.index[touched]
        best.view(-1).numpy()[place] = scores
        index.view(-1).numpy()[place] = points
        self.best[touched], kept = best.topk(k, dim=1)
        self.index[touched] = index.gather(1, kept)
