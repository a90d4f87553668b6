"""An index of images: built once, kept up to date, searched by image, part or prototype."""

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
from sumpool.search.queries import Embedded, QueryError, embed_query
from sumpool.search.stores.base import VectorIndex
from sumpool.search.threshold import Threshold
from sumpool.search.update import Compute, begin, open_vector_index, update

#: An image file, an image, the id of an indexed image, or one of these with a box.
Query = str | os.PathLike[str] | Image.Image | int | tuple[Any, Sequence[float]]


class Index(IndexedImages):
    """An index of images in a folder.

    Made by :meth:`build` or :meth:`open`. Reading takes no lock: an index that another process
    updates is searched as it was when it was opened.

    Args:
        folder: The index.
        device: Where the model runs on queries.

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
        """Embed the images of ``data`` into a new index; continues one that was interrupted.

        Args:
            data: Folder, CSV file or single image; see :class:`~sumpool.search.source.Source`.
            out: Folder of the index, new or that of an interrupted build.
            model: A model, the folder of a run or model, or None for the packaged network.
            format: Format of the data.
            split: Part of the data.
            labels: Whether to read labels where there are any.
            allow_outside: Whether a CSV file may name images outside its folder.
            thumbnails: Whether to store a small version of every image.
            store: What searches the vectors, see :data:`sumpool.search.stores.catalog.STORES`.
            batch_size: Images per forward pass.
            device: Where the model runs.
            workers: Threads that decode; None is one per core.
            progress: Whether to show progress bars.
            compute: Computes vectors in place of this process.

        Raises:
            StoreError: If ``out`` is a finished index, or holds something else.
            DataError: If there is no readable image.
        """
        begin(
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
        update(Path(out), device=device, workers=workers, progress=progress, compute=compute)
        return cls(out, device)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], device: torch.device | str = "cpu") -> Index:
        """Open the index in ``folder``.

        Raises:
            StoreError: If there is none, or it is damaged or not finished.
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
        """Add new images, drop deleted ones and embed changed ones again; see :meth:`build`.

        ``store`` replaces what searches the vectors.
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
        """The model, loaded when it is first needed."""
        return load_embedder(self.folder / MODEL, self.device)

    @property
    def threshold(self) -> Threshold:
        """From which similarity on images count as similar, and what that means."""
        return Threshold(self.header.threshold, self.header.threshold_meaning)

    @property
    def explains(self) -> bool:
        """Whether :meth:`explain` can be asked: the pooling is a sum over positions."""
        return can_explain(self.model.pooling)

    @property
    def prototypes(self) -> int:
        """Number of prototypes to search by; 0 where the model has none, or one for all images."""
        return 0 if self._attributes is None else self._attributes.shape[1]

    @cached_property
    def _store(self) -> VectorIndex:
        return open_vector_index(self.folder, self.header, self.images)

    @cached_property
    def _attributes(self) -> NDArray[np.float32] | None:
        column = self.images["z"].combine_chunks()
        if column.null_count == len(column):
            return None
        attributes: NDArray[np.float32] = column.flatten().to_numpy().reshape(len(self), -1)
        # A single prototype has all of every image: it tells none from another.
        return attributes if attributes.shape[1] > 1 else None

    def embed(self, query: Query, box: Sequence[float] | None = None) -> Embedded:
        """The query as the network embeds it.

        Args:
            query: An image file, a PIL image, the id of an indexed image, or a pair of one of these
                and a box.
            box: Left, top, right and bottom of the part that counts, in pixels of the upright
                image.
        """
        if isinstance(query, tuple):
            if box is not None:
                raise QueryError("box must be given once: with the query, or as an argument")
            return self.embed(*query)
        image = self.load(query) if isinstance(query, int) else read_image(query)
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
        """The indexed images that are most similar to ``query``, most similar first.

        An indexed image does not find itself.

        Args:
            query: As in :meth:`embed`, or what that returned.
            k: How many, at most.
            where: Find only images with these values: ``{"label": "cat"}``, or several labels.
            box: As in :meth:`embed`.
            threshold: Least similarity; None finds images however far. :attr:`threshold` is a
                measured one.

        Raises:
            QueryError: If an argument is not accepted; says what is.
            BrokenImageError: If the image cannot be read.
        """
        if k < 1:
            raise QueryError(f"k must be at least 1, got {k}")
        accepted = accepted_labels(where, self.labels)
        own = query if isinstance(query, int) and box is None else None
        if own is not None:
            vector = np.array(self.vectors[self.row(own)])
        elif isinstance(query, Embedded):
            vector = query.vector.numpy()
        else:
            vector = self.embed(query, box).vector.numpy()
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
        """The images in which a prototype is strongest, by its attribute z.

        Raises:
            QueryError: If the model has no prototypes, or not this one.
        """
        attributes = self._attributes
        if attributes is None:
            raise QueryError(
                f"the pooling {self.model.config.pooling} has no prototypes to search by"
            )
        if not 0 <= prototype < attributes.shape[1]:
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
        """Why the query and an indexed image match: heat maps that sum to their similarity.

        Raises:
            QueryError: If the pooling is no sum over positions.
        """
        if not self.explains:
            raise QueryError(
                f"the pooling {self.model.config.pooling} is no sum over positions: it cannot say "
                "where a match comes from"
            )
        embedded = query if isinstance(query, Embedded) else self.embed(query, box)
        return explain_match(self.model, embedded, self.embed(id))

    def duplicates(self, threshold: float = NEAR, *, progress: bool = False) -> list[Duplicates]:
        """Groups of images with the same content, then of images at least this similar."""
        return find_duplicates(
            self.vectors,
            self.images["id"].to_numpy(),
            self.images["content_hash"].to_pylist(),
            threshold,
            progress=progress,
        )
