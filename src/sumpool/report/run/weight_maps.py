"""Maps of pooling weights over the images of a gallery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sumpool.report.overlays import effective_share, overlay
from sumpool.report.run.gallery import Gallery, Query


@dataclass(frozen=True)
class WeightMap:
    """An image and its pooling weights.

    Attributes:
        query: The image.
        jpeg: Its thumbnail.
        heat: The weights laid over it, as JPEG.
        largest: The largest weight, relative to an equal one.
        share: Effective share of positions, 1 / (n Σ p²).
    """

    query: Query
    jpeg: bytes
    heat: bytes
    largest: float
    share: float


def weight_maps(gallery: Gallery, queries: Sequence[Query], top: float) -> list[WeightMap]:
    """Return the maps of the ``queries`` that have weights; ``top`` is drawn brightest."""
    maps = []
    for query in queries:
        if query.image in gallery.weights:
            jpeg, weights = gallery.images[query.image], gallery.weights[query.image]
            heat = overlay(jpeg, weights, top)
            maps.append(
                WeightMap(query, jpeg, heat, float(weights.max()), effective_share(weights))
            )
    return maps


def is_flat(maps: Iterable[NDArray[np.float32]]) -> bool:
    """Whether all weights are equal, as in average pooling."""
    return all(np.allclose(weights, 1, atol=1e-3) for weights in maps)
