"""Candidates of all combinations, block by block, and their ranking."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.evaluation.comparison import Comparison
from sumpool.evaluation.concatenated.pairs import ConcatenatedPairs
from sumpool.evaluation.metrics import score_hits
from sumpool.evaluation.neighbors import settle
from sumpool.evaluation.search import batches


class Sums:
    """Sums of metrics over queries, one per combination."""

    def __init__(self, combinations: int, ks: Sequence[int]) -> None:
        self.hits = {k: torch.zeros(combinations, dtype=torch.int64) for k in ks}
        self.r_precision = torch.zeros(combinations, dtype=torch.float64)
        self.average = torch.zeros(combinations, dtype=torch.float64)

    def add(self, which: slice, hits: Tensor, matches: Tensor) -> None:
        """Add queries: hits by rank (c, b, depth) for combinations ``which``, and matches (b,)."""
        c, b, depth = hits.shape
        scores = score_hits(hits.reshape(c * b, depth), matches.repeat(c))
        first, r_precision, average = (it.view(c, b) for it in scores)
        for k, total in self.hits.items():
            total[which] += ((first > 0) & (first <= k)).sum(1).cpu()
        self.r_precision[which] += r_precision.sum(1).cpu()
        self.average[which] += average.sum(1).cpu()

    def means(self, count: int, ks: Sequence[int]) -> dict[str, Tensor]:
        """Return the metrics, as means over ``count`` queries."""
        recall = {k: total.double() / count for k, total in self.hits.items()}
        return {
            "precision_at_1": recall[1],
            **{f"recall_at_{k}": recall[k] for k in ks},
            "r_precision": self.r_precision / count,
            "mean_average_precision_at_r": self.average / count,
        }


class _Candidates(NamedTuple):
    """Items that can be among the first k for some queries in any combination."""

    rows: Tensor  # the queries, (b,)
    items: Tensor  # gallery items in ascending order, padded to the longest row, (b, w)
    valid: Tensor  # which of them are not padding, (b, w)
    scores: Tensor  # of each model, −∞ for padding, (M, b, w)


class Search:
    """Computes the products of all models for blocks of queries, and ranks their candidates.

    ``dtype`` is the precision of the products; ``labels`` (Q,) and ``others`` (G,) are the classes
    of queries and gallery.
    """

    def __init__(
        self,
        pairs: ConcatenatedPairs,
        groups: Sequence[Sequence[int]],
        dtype: torch.dtype,
        labels: Tensor,
        others: Tensor,
        max_memory: int,
    ) -> None:
        self.pairs, self.labels, self.others = pairs, labels, others
        self.groups = [list(group) for group in groups]
        self.room = max_memory // 2  # one half for a block's products, one for its combinations
        self.size = 4 if dtype == torch.float32 else 8
        models, d = len(pairs.query), pairs.query.shape[2]
        self.left = torch.empty(models, pairs.queries, d + 2, dtype=dtype, device=pairs.device)
        self.right = torch.empty(models, d + 2, pairs.items, dtype=dtype, device=pairs.device)
        errors, bounds = [], []
        for number, (query, gallery) in enumerate(pairs.parts()):
            comparison = Comparison(query, gallery, pairs.own)
            factors = comparison.coarse if dtype == torch.float32 else comparison.fine
            unscaled = comparison.scale**-2  # a power of two
            torch.mul(factors.left, unscaled, out=self.left[number])
            self.right[number] = factors.right[:, : pairs.items]
            errors.append(factors.error * unscaled)
            bounds.append(2 * comparison.reach**2)
        # The error of a sum: the errors of its terms, and that of their addition.
        worst = [max(errors[it] for it in group) for group in self.groups]
        largest = sum(max(bounds[it] for it in group) for group in self.groups)
        rounding = len(self.groups) * torch.finfo(dtype).eps * largest
        self.doubt = 2 * (sum(worst) + rounding)
        half = (len(self.groups) + 1) // 2
        self.halves = [list(product(*part)) for part in (self.groups[:half], self.groups[half:])]

    def run(self, rows: Tensor, need: Tensor, matches: Tensor, sums: Sums) -> Iterator[int]:
        """Score ``rows`` and add to ``sums``; yield the number of queries finished."""
        row_bytes = self.size * (len(self.left) + 4) * self.pairs.items
        for block in batches(rows, row_bytes, self.room):
            depth = int(need[block].max())
            scores = torch.bmm(self.left[:, block], self.right)  # (M, b, G)
            mask = self.may_be_first(scores, block, depth)
            width = int(mask.sum(1).max())
            models = len(self.left) + sum(map(len, self.halves))
            held = (self.size * models + 64) * width + 200 * depth
            places = torch.arange(len(block), device=block.device)
            for part in batches(places, 2 * held, self.room):
                found = self.gather(scores, mask, block, part)
                self.rank(found, depth, matches[block[part]], sums)
            yield len(block)

    def may_be_first(self, scores: Tensor, rows: Tensor, depth: int) -> Tensor:
        """Return which items can be among the first ``depth`` of some combination, (b, G)."""
        low, high = (
            _summed(reduce(extreme, [scores[it] for it in group]) for group in self.groups)
            for extreme in (torch.minimum, torch.maximum)
        )
        if self.pairs.own:
            own = torch.arange(len(rows), device=rows.device), rows
            low[own] = high[own] = -math.inf
        bar = low.topk(depth, dim=1).values[:, -1:]
        return high >= bar - self.doubt

    def gather(self, scores: Tensor, mask: Tensor, block: Tensor, part: Tensor) -> _Candidates:
        """Return the candidates of the queries ``part`` of a block."""
        chosen = mask[part]
        count = chosen.sum(1)
        row, item = chosen.nonzero(as_tuple=True)
        place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
        width = int(count.max())
        items = torch.zeros(len(part), width, dtype=torch.int64, device=row.device)
        items[row, place] = item
        valid = torch.arange(width, device=row.device) < count[:, None]
        held = scores[:, part[0] : part[-1] + 1].gather(2, items.expand(len(scores), -1, -1))
        return _Candidates(block[part], items, valid, held.masked_fill_(~valid, -math.inf))

    def rank(self, found: _Candidates, depth: int, matches: Tensor, sums: Sums) -> None:
        """Rank the candidates of each combination, and add to ``sums``."""
        match = (self.others[found.items] == self.labels[found.rows, None]) & found.valid
        one, other = (
            torch.stack([_summed(found.scores[it] for it in chosen) for chosen in half])
            if half != [()]
            else found.scores.new_zeros(1, *match.shape)
            for half in self.halves
        )
        total = len(one) * len(other)
        b, width = match.shape
        step = max(1, self.room // (2 * b * ((self.size + 24) * width + 200 * depth)))
        for start in range(0, total, step):
            which = slice(start, min(start + step, total))
            chosen = torch.arange(which.start, which.stop, device=match.device)
            scores = one[chosen // len(other)] + other[chosen % len(other)]  # (c, b, w)
            virtual = (chosen[:, None] * self.pairs.queries + found.rows).view(-1)
            lines = torch.arange(b, device=match.device).repeat(len(chosen))
            hits = self.first_hits(
                scores.view(-1, width), virtual, lines, found.items, match, depth
            )
            sums.add(which, hits.view(len(chosen), b, depth), matches)

    def first_hits(
        self,
        scores: Tensor,
        virtual: Tensor,
        lines: Tensor,
        items: Tensor,
        match: Tensor,
        depth: int,
    ) -> Tensor:
        """Return whether the candidates at the first ``depth`` ranks are matches, (n, depth)."""
        width = scores.shape[1]

        def ranked(which: Tensor | slice, count: int) -> tuple[Tensor, Tensor]:
            top, place = scores[which].topk(count, dim=1)
            line = lines[which]
            hits = match[line].gather(1, place)
            # The order of two matches, or of two non-matches, does not matter.
            close = top[:, :-1] - top[:, 1:] <= self.doubt
            mixed = (close & (hits[:, 1:] != hits[:, :-1])).any(1).nonzero()[:, 0]
            own, line = virtual[which][mixed], line[mixed]

            def pair_scores(row: Tensor, at: Tensor) -> Tensor:
                return self.pairs.scores(own[row], items[line[row], at])

            rows = torch.arange(len(mixed), device=mixed.device)
            exact = settle(pair_scores, rows, top[mixed], place[mixed], self.doubt)
            hits[mixed] = match[line].gather(1, exact)
            return hits[:, :depth], top

        wide = min(width, depth + 3 + depth // 16)
        hits, top = ranked(slice(None), wide)
        if wide < width:
            # No other candidate scores above the last of the ``wide`` first.
            unsure = (~(top[:, depth - 1] - top[:, -1] > self.doubt)).nonzero()[:, 0]
            for part in batches(unsure, 64 * width, self.room):
                hits[part], _ = ranked(part, width)
        return hits


def _summed(terms: Iterator[Tensor]) -> Tensor:
    total = next(terms).clone()
    for term in terms:
        total += term
    return total
