"""Index of images: built once, updated in place, searched by image, region or prototype."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sumpool.data.sets.decoding import read_image
from sumpool.models import Embedder
from sumpool.models.opening import load_embedder
from sumpool.search.assemble import Changes
from sumpool.search.contributions import can_explain
from sumpool.search.duplicates import NEAR, Duplicates, find_duplicates
from sumpool.search.explain import Explanation, explain_match
from sumpool.search.filters import accepted_labels
from sumpool.search.folder import MODEL
from sumpool.search.images import IndexedImages, Match
from sumpool.search.queries import Embedded, QueryError, check_k, embed_query
from sumpool.search.stores.base import VectorIndex
from sumpool.search.threshold import Threshold
from sumpool.search.update import Compute, begin, open_vector_index, update
from sumpool.transport.validation import is_integer, is_number

#: An image file, an image, the id of an indexed image, or one of these with a box.
Query = str | os.PathLike[str] | Image.Image | int | tuple[Any, Sequence[float]]


class Index(IndexedImages):
    """An index of images, stored in a folder.

    Create one with :meth:`build` or :meth:`open`. Reading takes no lock: if another process updates
    the index, searches use the version that was opened.

    Args:
        folder: Folder of the index.
        device: Device on which queries are embedded.
    """

    @classmethod
    def build(
        cls,
        data: str | os.PathLike[str],
        out: str | os.PathLike[str],
        model: str | os.PathLike[str] | Embedder | None = None,
        *,
        format: str = "auto",
        split: str = "all",
        labels: bool = True,
        allow_outside: bool = False,
        thumbnails: bool = False,
        store: str = "auto",
        batch_size: int = 64,
        device: torch.device | str = "cpu",
        workers: int | None = None,
        progress: bool = True,
        compute: Compute | None = None,
    ) -> Index:
        """Embed the images of ``data`` into a new index, or resume an interrupted build.

        Args:
            data: Folder, CSV file or single image; see :class:`~sumpool.search.source.Source`.
            out: Folder of the index, new or from an interrupted build.
            model: A model, a run or model folder, or None for the packaged network.
            format: Format of the data.
            split: Split of the data.
            labels: Whether to read labels if the data has them.
            allow_outside: Whether a CSV file may name images outside its folder.
            thumbnails: Whether to store a thumbnail of every image.
            store: Vector store, see :data:`sumpool.search.stores.catalog.STORES`.
            batch_size: Images per forward pass.
            device: Device of the model.
            workers: Number of decoding threads; None uses one per core.
            progress: Whether to show progress bars.
            compute: Computes the vectors; None uses this process.

        Raises:
            StoreError: If ``out`` holds a finished index or other files.
            DataError: If no image can be read.
        """
        source = begin(
            data,
            Path(out),
            model,
            format=format,
            split=split,
            labels=labels,
            allow_outside=allow_outside,
            thumbnails=thumbnails,
            store=store,
            batch_size=batch_size,
        )
        update(
            Path(out),
            device=device,
            workers=workers,
            progress=progress,
            compute=compute,
            source=source,
        )
        return cls(out, device)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Index:
        """Open the index in ``folder``.

        Raises:
            StoreError: If there is no index, or it is damaged or unfinished.
        """
        return cls(folder, device)

    def update(
        self,
        *,
        workers: int | None = None,
        progress: bool = True,
        store: str | None = None,
        compute: Compute | None = None,
    ) -> Changes:
        """Add new images, drop deleted ones and re-embed changed ones; see :meth:`build`.

        ``store`` replaces the vector store; None keeps it.
        """
        changes = update(
            self.folder,
            device=self.device,
            workers=workers,
            progress=progress,
            store=store,
            compute=compute,
        )
        self._open()
        return changes

    @cached_property
    def model(self) -> Embedder:
        """The model, loaded on first use."""
        return load_embedder(self.folder / MODEL, self.device)

    @property
    def threshold(self) -> Threshold:
        """Similarity at which images count as similar, and how it was measured."""
        return Threshold(self.header.threshold, self.header.threshold_meaning)

    @property
    def explains(self) -> bool:
        """Whether :meth:`explain` is available: the pooling must be a sum over positions."""
        return can_explain(self.model.pooling)

    @property
    def prototypes(self) -> int:
        """Number of prototypes to search by; 0 if the model has fewer than two."""
        return 0 if self.attributes is None else self.attributes.shape[1]

    @cached_property
    def attributes(self) -> NDArray[np.float32] | None:
        """Attributes z of the images, (N, m); None if there are fewer than two prototypes."""
        column = self.images["z"].combine_chunks()
        if column.null_count == len(column):
            return None
        attributes: NDArray[np.float32] = column.flatten().to_numpy().reshape(len(self), -1)
        # A single prototype receives all of every image and cannot tell them apart.
        return attributes if attributes.shape[1] > 1 else None

    @cached_property
    def _store(self) -> VectorIndex:
        return open_vector_index(self.folder, self.header, self.images)

    def embed(self, query: Query, box: Sequence[float] | None = None) -> Embedded:
        """Embed a query.

        Args:
            query: An image file, a PIL image, the id of an indexed image, or a pair of one of these
                and a box.
            box: Left, top, right and bottom of the region to embed, in pixels of the upright
                image.
        """
        if isinstance(query, tuple) and len(query) == 2:
            if box is not None:
                raise QueryError("box must be given once: with the query, or as an argument")
            return self.embed(*query)
        if is_integer(query):
            image = self.load(query)
        elif isinstance(query, str | os.PathLike | Image.Image):
            image = read_image(query)
        else:
            raise QueryError(
                "query must be an image file, a PIL image, the id of an indexed image, or a pair "
                f"of one of these and a box, got {type(query).__name__}"
            )
        return embed_query(self.model, image, box)

    def search(
        self,
        query: Query | Embedded,
        k: int = 10,
        *,
        where: Mapping[str, str | Sequence[str]] | None = None,
        box: Sequence[float] | None = None,
        threshold: float | None = None,
    ) -> list[Match]:
        """Find the indexed images most similar to ``query``, most similar first.

        A whole image queried by its id is left out of its own results.

        Args:
            query: As in :meth:`embed`, or its result.
            k: Maximum number of results.
            where: Restrict results to these values: ``{"label": "cat"}``, or several labels.
            box: As in :meth:`embed`.
            threshold: Minimum similarity; None accepts any. :attr:`threshold` is a measured one.

        Raises:
            QueryError: If an argument is invalid; the message says what is accepted.
            BrokenImageError: If the image cannot be read.
        """
        k = check_k(k)
        if threshold is not None and not (is_number(threshold) and threshold == threshold):
            raise QueryError(f"threshold must be a number, got {threshold!r}")
        accepted = accepted_labels(where, self.labels)
        own = query if is_integer(query) and box is None else None
        if own is not None:
            vector = np.array(self.vectors[self.row(own)])
        else:
            vector = self._embedded(query, box).vector.numpy()
        wanted = min(k + (own is not None), len(self))
        found = self._store.search(vector[None], wanted, accepted)
        pairs = zip(found.ids[0].tolist(), found.similarities[0].tolist(), strict=True)
        least = -np.inf if threshold is None else threshold
        named = self._named
        matches = [
            Match(id, *named[id], min(value, 1.0))
            for id, value in pairs
            if id >= 0 and id != own and value >= least
        ]
        return matches[:k]

    def search_prototype(self, prototype: int, k: int = 10) -> list[Match]:
        """Find the images in which a prototype is strongest, by its attribute z.

        Raises:
            QueryError: If the model has no such prototype.
        """
        attributes = self.attributes
        if attributes is None:
            raise QueryError(
                f"the pooling {self.model.config.pooling} has no prototypes to search by"
            )
        k = check_k(k)
        if not (is_integer(prototype) and 0 <= prototype < attributes.shape[1]):
            raise QueryError(
                f"prototype must lie between 0 and {attributes.shape[1] - 1}, got {prototype}"
            )
        column = attributes[:, prototype]
        order = np.argsort(-column, kind="stable")[:k].tolist()
        ids = self.images["id"].to_numpy()
        return [self.match(int(ids[row]), float(column[row])) for row in order]

    def explain(
        self, query: Query | Embedded, id: int, *, box: Sequence[float] | None = None
    ) -> Explanation:
        """Explain a match with an indexed image by heat maps that sum to the similarity.

        Raises:
            QueryError: If the pooling is not a sum over positions.
        """
        if not self.explains:
            raise QueryError(
                f"the pooling {self.model.config.pooling} is not a sum over positions: it cannot "
                "say where a match comes from"
            )
        return explain_match(self.model, self._embedded(query, box), self.embed(id))

    def _embedded(self, query: Query | Embedded, box: Sequence[float] | None) -> Embedded:
        if not isinstance(query, Embedded):
            return self.embed(query, box)
        if box is not None:
            raise QueryError("box must be left out with an embedded query: give it to embed")
        return query

    def duplicates(self, threshold: float = NEAR, *, progress: bool = False) -> list[Duplicates]:
        """Group identical images, then images whose similarity is at least ``threshold``."""
        return find_duplicates(
            self.vectors,
            self.images["id"].to_numpy(),
            self.images["content_hash"].to_pylist(),
            threshold,
            progress=progress,
        )
