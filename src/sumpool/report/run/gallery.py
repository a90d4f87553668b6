"""The gallery: the pictures on the page of a run.

``sumpool.evaluation.gallery`` collects it with a model, ``gallery_files`` stores it, and drawing it
needs neither model nor data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Neighbor:
    """One retrieved image.

    Attributes:
        image: Name of its thumbnail.
        item: Name of the image in its data set.
        class_name: Its class.
        similarity: 1 − ½ d² with d the distance to the query: the cosine for unit vectors.
        right: Whether it has the query's class.
    """

    image: str
    item: str
    class_name: str
    similarity: float
    right: bool


@dataclass(frozen=True)
class Query:
    """One query and what was retrieved for it, nearest first.

    Attributes:
        image: Name of its thumbnail.
        item: Name of the image in its data set.
        class_name: Its class.
        relevant: Number R of searched images of its class.
        average_precision: Its average precision at R; None if R = 0.
        neighbors: The nearest images, without the query itself.
    """

    image: str
    item: str
    class_name: str
    relevant: int
    average_precision: float | None
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Region:
    """The part of an image that feeds a prototype.

    Attributes:
        image: Name of its thumbnail, the position with its surroundings.
        item: Name of the image in its data set.
        class_name: Its class.
        weight: Mass that the position sends to the prototype, n π / μ: part of the position's
            pooling weight, relative to an equal one.
        box: The position in the thumbnail: left, top, right, bottom as fractions.
    """

    image: str
    item: str
    class_name: str
    weight: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Prototype:
    """A prototype, shown by the regions that feed it.

    Attributes:
        index: Index of the prototype.
        share: Mean of its attribute over images; all shares sum to 1.
        regions: The positions that send it most, at most one per image.
    """

    index: int
    share: float
    regions: tuple[Region, ...]


@dataclass(frozen=True)
class EmbeddingMap:
    """The embedding in two dimensions.

    Attributes:
        points: One point per image, (N, 2).
        labels: The class of each, (N,), indexing ``class_names``.
        class_names: Names of the classes.
        colored: The classes in color, worst retrieved first.
        method: Method of the projection: "t-SNE" or "PCA".
    """

    points: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    colored: tuple[int, ...]
    method: str


@dataclass(frozen=True)
class Gallery:
    """The pictures of one evaluation.

    Attributes:
        source: The evaluated images: "validation" or "test".
        queries: Number of queries with a match, from which the worst are selected.
        worst: Queries with the lowest average precision, lowest first.
        sample: Queries drawn at random, whatever the model.
        weights: Pooling weights of queries relative to an equal one, n p, (h, w), by the name of
            the thumbnail.
        usage: Mean attribute of each prototype, (m,); None without prototypes.
        prototypes: The most used prototypes, in descending order.
        embedding_map: The map; None if there is none.
        notes: What is missing, and why.
        images: The thumbnails, as JPEG, by name.
    """

    source: str
    queries: int
    worst: tuple[Query, ...]
    sample: tuple[Query, ...]
    weights: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    usage: NDArray[np.float32] | None = None
    prototypes: tuple[Prototype, ...] = ()
    embedding_map: EmbeddingMap | None = None
    notes: tuple[str, ...] = ()
    images: Mapping[str, bytes] = field(default_factory=dict)
