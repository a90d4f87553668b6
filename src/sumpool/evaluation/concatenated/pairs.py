"""Exact comparison of pairs of images by concatenated embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sumpool.evaluation.comparison import half_squares, piece_rows
from sumpool.evaluation.inputs import as_vectors

#: From this number of pairs on, equal vectors are compared only once.
_MANY = 2**18


def unit_parts(name: str, parts: Sequence[Tensor]) -> Tensor:
    """Normalize the embeddings of each model to length 1, float32 of shape (M, N, d).

    Zero vectors stay zero. Lengths are computed in float64, and the result is rounded once.

    Example:
        >>> unit_parts("query", [torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0]])])
        tensor([[[0.6000, 0.8000]], [[0.0000, 0.0000]]])
    """
    if not parts:
        raise ValueError(f"{name} must hold the embeddings of at least one model")
    shape = parts[0].shape
    out = torch.empty(len(parts), *shape, device=parts[0].device)
    for number, part in enumerate(parts):
        vectors = as_vectors(name, part)
        if vectors.shape != shape:
            raise ValueError(
                f"{name} must have the same shape for all models, got {tuple(shape)} and "
                f"{tuple(vectors.shape)}"
            )
        for start in range(0, len(vectors), 2**14):
            rows = vectors[start : start + 2**14].double()
            # The largest number is factored out, so that no square overflows or underflows.
            rows /= rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
            length = rows.square().sum(1, keepdim=True).sqrt()
            out[number, start : start + 2**14] = rows / length.clamp(min=0.5)
    return out


class ConcatenatedPairs:
    """Queries and gallery under several models, and the combinations to concatenate.

    Args:
        query: Parts of the queries, (M, Q, d).
        gallery: Parts of the gallery, (M, G, d); None is the queries themselves.
        combinations: Models of each combination, (C, F).
    """

    def __init__(self, query: Tensor, gallery: Tensor | None, combinations: Tensor) -> None:
        if gallery is not None and (len(gallery), gallery.shape[2]) != (len(query), query.shape[2]):
            raise ValueError(
                f"gallery must be of the {len(query)} models of query with {query.shape[2]} "
                f"dimensions, got {len(gallery)} with {gallery.shape[2]}"
            )
        self.query = query
        self.gallery = query if gallery is None else gallery
        self.own = gallery is None
        self.device = query.device
        self.combinations = combinations.to(self.device)
        self.queries, self.items = self.query.shape[1], self.gallery.shape[1]  # Q, G

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield queries and gallery of each model; the same object if they are the same set."""
        for query, gallery in zip(self.query, self.gallery, strict=True):
            yield query, (query if self.own else gallery)

    def scores(self, virtual: Tensor, items: Tensor) -> Tensor:
        """Return −½ squared distances of ``virtual``, combination · Q + query, to ``items``.

        They are those of :meth:`sumpool.evaluation.comparison.Comparison.pair_scores`, float64, up
        to a common power of two: equal vectors get bitwise equal scores.
        """
        if len(virtual) < _MANY or not self._has_copies:
            return self._scores(virtual, items)
        query_kinds, item_kinds = self._kinds
        combination = virtual // self.queries
        kinds = int(item_kinds.max()) + 1
        key = combination * self.queries + query_kinds[virtual % self.queries]
        key = key * kinds + item_kinds[items]
        distinct, kind = torch.unique(key, return_inverse=True)
        first = torch.empty_like(distinct)
        first[kind] = torch.arange(len(kind), device=kind.device)
        return self._scores(virtual[first], items[first])[kind]

    def _scores(self, virtual: Tensor, items: Tensor) -> Tensor:
        out = torch.empty(len(virtual), dtype=torch.float64, device=self.device)
        step = piece_rows(self.device, self.combinations.shape[1] * self.query.shape[2])
        for start in range(0, len(virtual), step):
            piece = slice(start, start + step)
            models = self.combinations[virtual[piece] // self.queries]  # (p, F)
            x = self.query[models, (virtual[piece] % self.queries)[:, None]].double()  # (p, F, d)
            x -= self.gallery[models, items[piece, None]]
            out[piece] = half_squares(x.flatten(1))
        return out

    @cached_property
    def _kinds(self) -> tuple[Tensor, Tensor]:
        """Ids of queries and of items; those with equal vectors in all models share one."""
        items = _kinds(self.gallery)
        return (items if self.own else _kinds(self.query)), items

    @cached_property
    def _has_copies(self) -> bool:
        return any(int(it.max()) + 1 < len(it) for it in self._kinds)


def _kinds(parts: Tensor) -> Tensor:
    rows = np.ascontiguousarray(parts.movedim(1, 0).flatten(1).cpu().numpy())
    whole = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    _, kinds = np.unique(whole, return_inverse=True)
    return torch.from_numpy(kinds).to(parts.device)
