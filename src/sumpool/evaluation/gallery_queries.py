"""The queries to show, and the images retrieved for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from sumpool.evaluation.gallery_images import ShownImages
from sumpool.evaluation.metrics import QueryScores, score_queries
from sumpool.evaluation.neighbors import nearest_neighbors
from sumpool.report.run.gallery import Neighbor, Query


def score_shown(
    query: ShownImages, searched: ShownImages, device: torch.device | str
) -> QueryScores:
    """Score each query; ``searched`` may be the queries themselves."""
    sets = (query,) if searched is query else (query, searched)
    scores = score_queries(*(x.to(device) for it in sets for x in (it.vectors, it.labels)))
    return QueryScores(*(part.cpu() for part in scores))


def worst_rows(scores: QueryScores, count: int, seed: int) -> list[int]:
    """Return the queries with the lowest average precision, lowest first.

    Ties, of which a weak model has many, come in random order: in data set order they would all be
    of one class.
    """
    rows = torch.nonzero(scores.matches > 0).flatten().numpy()
    rows = np.random.default_rng(seed).permutation(rows)
    order = scores.average_precision.numpy()[rows].argsort(kind="stable")
    return [int(row) for row in rows[order[:count]]]


def shown_queries(
    query: ShownImages,
    searched: ShownImages,
    rows: list[int],
    scores: QueryScores,
    count: int,
    device: torch.device | str,
) -> Iterator[Query]:
    """Yield the queries ``rows`` with their ``count`` nearest images in ``searched``.

    If ``searched`` is ``query``, no query finds itself; ``scores`` are those of all queries.
    """
    same = searched is query
    own = torch.tensor(rows)
    gallery = searched.vectors.to(device)
    count = min(count + same, len(gallery))  # one more, because the query is left out below
    near = nearest_neighbors(query.vectors[own.to(query.vectors.device)].to(device), gallery, count)
    similarities, found = (part.cpu() for part in near)
    if same:
        # The query itself moves to the end and is cut off. Among many equal vectors it may not
        # have been found; then the last image is cut off instead.
        order = (found == own[:, None]).int().argsort(dim=1, stable=True)[:, :-1]
        similarities, found = similarities.gather(1, order), found.gather(1, order)
    for row, likeness, others in zip(rows, similarities.tolist(), found.tolist(), strict=True):
        matches = int(scores.matches[row])
        yield Query(
            image=query.thumbnail(row),
            **query.named(row),
            relevant=matches,
            average_precision=float(scores.average_precision[row]) if matches else None,
            neighbors=tuple(
                Neighbor(
                    image=searched.thumbnail(other),
                    **searched.named(other),
                    similarity=similarity,
                    right=bool(searched.labels[other] == query.labels[row]),
                )
                for similarity, other in zip(likeness, others, strict=True)
            ),
        )
