"""Approximate and exact scores between two sets of vectors.

The score of a query and a gallery item is −½ ‖q − g‖² after a common scaling, so that larger is
nearer. A matrix product computes all scores at once, up to a rounding error that is bounded here.
Where that bound leaves an order undecided, the scores of single pairs are computed by a fixed
float64 formula, whose results are bitwise identical on every device and for every block size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

#: Gallery columns are padded to a multiple of this, so that they divide into equal strips.
STRIP = 64
#: The score of padding columns; all real ones lie in [−2, 0].
NOWHERE = -1e30

#: Numbers that the exact formula processes at a time, by device.
_PIECE = {"cpu": 2**19, "cuda": 2**26}


class Factors(NamedTuple):
    """Two matrices whose product holds the scores.

    Attributes:
        left: One row per query, (Q, d + 2).
        right: One column per gallery item, (d + 2, G'), G' ≥ G; columns beyond G score ``NOWHERE``.
        error: Bound on the difference between an entry of the product, summed in any order, and its
            score; 0 if products and sums are exact.
    """

    left: Tensor
    right: Tensor
    error: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Queries to compare with a gallery.

    Attributes:
        query: Vectors of shape (Q, d), float32 or float64, finite.
        gallery: Vectors of shape (G, d) on the same device.
        own: Whether query i is item i of the gallery and must not retrieve it.
    """

    query: Tensor
    gallery: Tensor
    own: bool

    @property
    def symmetric(self) -> bool:
        """Whether the gallery is the query set, so that scores are symmetric."""
        return self.gallery is self.query

    @property
    def available(self) -> int:
        """Number of gallery items that a query can retrieve."""
        return self.gallery.shape[0] - int(self.own)

    @cached_property
    def coarse(self) -> Factors:
        """Factors in float32, to find candidates fast."""
        return self._factors(torch.float32)

    @cached_property
    def fine(self) -> Factors:
        """Factors in float64, for orders that float32 cannot resolve."""
        return self._factors(torch.float64)

    @cached_property
    def center(self) -> Tensor:
        """The mean of the gallery, (d,), in float64.

        Distances do not depend on it, but rounding errors do: subtracting it separates embeddings
        that have nearly collapsed to a point.
        """
        total = sum(part.sum(0) for _, part in _parts(self.gallery))
        assert isinstance(total, Tensor)
        return total / self.gallery.shape[0]

    @cached_property
    def reach(self) -> float:
        """The largest norm of a centered vector."""
        largest = 0.0
        for vectors in self._sets:
            for _, part in _parts(vectors):
                part -= self.center
                unit = float(part.abs().max())  # factored out, so that no square underflows
                if unit > 0:
                    norm = part.div_(unit).square_().sum(1).max().sqrt()
                    largest = max(largest, unit * float(norm))
        return largest

    @cached_property
    def scale(self) -> float:
        """A power of two that scales centered vectors into the unit ball without rounding."""
        return 2.0 ** -min(max(math.frexp(self.reach)[1], -1000), 1000)

    def pair_scores(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the scores of queries ``rows[i]`` and items ``columns[i]``, float64 of shape (n,).

        Every sum uses the same tree of additions, each rounded on its own: equal vectors get
        bitwise equal scores.
        """
        out = torch.empty(len(rows), dtype=torch.float64, device=self.query.device)
        step = piece_rows(out.device, self.query.shape[1])
        for start in range(0, len(rows), step):
            piece = slice(start, start + step)
            x = self.query.index_select(0, rows[piece]).double()
            x.sub_(self.gallery.index_select(0, columns[piece])).mul_(self.scale)
            out[piece] = half_squares(x)
        return out

    def row_scores(self, rows: Tensor) -> Tensor:
        """Return the ``pair_scores`` of some queries with the whole gallery, (n, G)."""
        if self.fine.error == 0:
            return self.fine.left[rows] @ self.fine.right[:, : len(self.gallery)]
        # A collapsed network produces many equal vectors; each is compared once.
        places, kinds = self._distinct
        queries, kind = torch.unique(self.query[rows], dim=0, return_inverse=True)
        first = torch.empty(len(queries), dtype=torch.int64, device=rows.device)
        first[kind] = rows
        scores = self.pair_scores(
            first.repeat_interleave(len(places)), places.repeat(len(first))
        ).view(len(first), len(places))
        return scores[kind][:, kinds]

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor]:
        """A gallery index per distinct vector, and for each item the number of its vector."""
        vectors, kinds = torch.unique(self.gallery, dim=0, return_inverse=True)
        places = torch.empty(len(vectors), dtype=torch.int64, device=kinds.device)
        places[kinds] = torch.arange(len(kinds), device=kinds.device)
        return places, kinds

    @property
    def _sets(self) -> tuple[Tensor, ...]:
        return (self.gallery,) if self.symmetric else (self.query, self.gallery)

    def _factors(self, dtype: torch.dtype) -> Factors:
        digits, unit = (24, 2.0**-24) if dtype == torch.float32 else (53, 2.0**-53)
        d = self.gallery.shape[1]
        whole = self._is_on_grid(digits)
        center = torch.zeros_like(self.center) if whole else self.center
        right = self._augmented(self.gallery, center, dtype)  # (G, d + 2)
        left = right if self.symmetric else self._augmented(self.query, center, dtype)
        fill = -len(right) % STRIP
        columns = torch.zeros(d + 2, len(right) + fill, dtype=dtype, device=right.device)
        columns[:, : len(right)] = right.t()
        # −½‖q‖² · 1 + 1 · (−½‖g‖²): the last two entries are swapped on the right.
        columns[d, : len(right)] = 1
        columns[d + 1, : len(right)] = right[:, d]
        columns[d + 1, len(right) :] = NOWHERE
        # With norms at most r: 2 (d + 2) u r² for d + 2 products and their sum, in any order; u r²
        # for rounded norms; 4 u r² for the rounding of the centered vectors; the rest is slack for
        # terms in u² and for the last bit, which `ranking` borrows.
        radius = self.reach * self.scale
        error = 0.0 if whole or radius == 0 else (2 * d + 32) * unit * radius**2
        return Factors(left, columns, error)

    def _augmented(self, vectors: Tensor, center: Tensor, dtype: torch.dtype) -> Tensor:
        """Centered, scaled vectors followed by −½ their squared norm and by 1, (n, d + 2)."""
        out = torch.empty(len(vectors), vectors.shape[1] + 2, dtype=dtype, device=vectors.device)
        for rows, part in _parts(vectors):
            x = ((part - center) * self.scale).to(dtype)
            out[rows, :-2] = x
            out[rows, -2] = x.double().square().sum(1).mul(-0.5).to(dtype)
        out[:, -1] = 1
        return out

    def _is_on_grid(self, digits: int) -> bool:
        """Whether products and sums of these vectors are exact in ``digits`` binary digits.

        They are if all numbers are multiples of one power of two g and d (max/g)² ≤ 2^(digits − 2):
        every partial sum is then a multiple of g²/2, and at most 2^digits times as large. Binary
        codes and 8-bit embeddings are such vectors, and full of ties.
        """
        largest = max(float(part.abs().max()) for v in self._sets for _, part in _parts(v))
        if largest == 0:
            return True
        bound = largest * math.sqrt(self.gallery.shape[1])
        grid = 2.0 ** (math.ceil(math.log2(bound)) - (digits - 2) // 2)
        # The scaled vectors are then on a grid too, because the scale is a power of two.
        return all(
            bool(((part / grid) == (part / grid).round()).all())
            for v in self._sets
            for _, part in _parts(v)
        )


def half_squares(x: Tensor) -> Tensor:
    """Return −½ ‖x‖² of each row, by a fixed tree of additions, (n,); overwrites ``x`` (n, d)."""
    x.square_()
    width = x.shape[1]
    while width > 1:
        half = (width + 1) // 2
        x[:, : width - half] += x[:, half:width]
        width = half
    return x[:, 0] * -0.5


def piece_rows(device: torch.device, width: int) -> int:
    """Return how many rows of ``width`` numbers the exact formula processes at a time."""
    return max(1, _PIECE.get(device.type, 2**19) // width)


def _parts(vectors: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of rows of ``vectors``, copied to float64."""
    step = max(1, 2**22 // vectors.shape[1])
    for start in range(0, len(vectors), step):
        rows = slice(start, start + step)
        yield rows, vectors[rows].to(torch.float64, copy=True)
