"""Why two images match: heat maps that sum to their similarity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from sumpool.evaluation.gallery_regions import grid_shape
from sumpool.models import Embedder
from sumpool.search.contributions import contributions
from sumpool.search.queries import Embedded, View


@dataclass(frozen=True)
class Explanation:
    r"""Explanation of why two images match.

    An embedding is :math:`e = \sum_j p_j f_j / \lVert\sum_j p_j f_j\rVert`, so that the similarity
    of a query q and a result g is a sum over the positions of either:
    :math:`\langle e_q, e_g\rangle = \sum_j p_j \langle f_j, e_g\rangle / \lVert\cdot\rVert`.

    Attributes:
        similarity: Cosine similarity of the two images.
        query_map: Contribution of each position of the query, (h, w); sums to the similarity.
        result_map: Contribution of each position of the result, (h, w); sums to the similarity.
        query: The square of the query that the network saw.
        result: The square of the result that the network saw.
    """

    similarity: float
    query_map: NDArray[np.float32]
    result_map: NDArray[np.float32]
    query: View
    result: View


def explain_match(model: Embedder, query: Embedded, result: Embedded) -> Explanation:
    """Split the similarity of two embedded images over their positions.

    Raises:
        QueryError: If the pooling is not a sum over positions.
    """
    parts = [contributions(model, it.features, it.mask) for it in (query, result)]
    totals = [it.sum(0) for it in parts]
    units = [F.normalize(it, dim=0) for it in totals]
    similarity = float(units[0] @ units[1])
    query_map, result_map = (
        _map(part @ other / total.norm().clamp_min(1e-30), it, model)
        for part, total, other, it in zip(
            parts, totals, reversed(units), (query, result), strict=True
        )
    )
    return Explanation(similarity, query_map, result_map, query.view, result.view)


def _map(values: Tensor, embedded: Embedded, model: Embedder) -> NDArray[np.float32]:
    positions = model.pooling.to_tokens(embedded.features)[1]
    grid = grid_shape(positions) or (1, positions[0])
    return values.reshape(grid).float().cpu().numpy()
