"""Data of an index for the pages: images by id, results, pictures, prototypes, the map.

Slow calls run in threads, see :mod:`sumpool.serve.worker`. Links that lead out of the indexed
folder are followed to the images that were indexed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sumpool.data.base import BrokenImageError
from sumpool.evaluation.gallery_map import flatten_to_plane
from sumpool.evaluation.gallery_regions import feeding
from sumpool.report.overlays import scale_top
from sumpool.search import Explanation, Index, Match
from sumpool.search.explain import explain_match
from sumpool.search.filters import accepted_labels
from sumpool.search.parts import SIDE
from sumpool.search.queries import Embedded
from sumpool.serve.arguments import Box
from sumpool.serve.pictures import SIDES, encode, heat, patch, shrunk
from sumpool.serve.uploads import Upload, Uploads
from sumpool.system.digests import file_sha256
from sumpool.system.errors import UserError
from sumpool.system.wording import counted

#: Maximum number of points of the map, and the seed they are drawn with.
MOST_POINTS, SEED = 2000, 0
#: Maximum number of images that the duplicates page compares; the command has no such limit.
MOST_COMPARED = 20_000


class MissingError(UserError):
    """The requested item does not exist."""


@dataclass(frozen=True)
class Query:
    """A query image, or a region of one.

    Attributes:
        source: The id of an indexed image, or the token of an upload.
        box: The region to search by; None for the whole image.
    """

    source: int | str
    box: Box | None = None


class Collection:
    """An index and uploads, as shown to visitors.

    Args:
        index: The index.
        uploads: The uploaded images.
    """

    def __init__(self, index: Index, uploads: Uploads) -> None:
        self.index = index
        self.uploads = uploads
        self.root = Path(index.header.data).resolve()
        if self.root.is_file():
            self.root = self.root.parent
        # Caches per instance, so that they are freed with it.
        self.embedded = lru_cache(64)(self._embedded)
        self.explanation = lru_cache(256)(self._explanation)
        self._pictures = {
            "small": lru_cache(4096)(self._picture),
            "large": lru_cache(128)(self._picture),
        }
        self.duplicates = lru_cache(4)(self._duplicates)

    def warm(self) -> None:
        """Load the model and open the store, so that the first visitor does not wait."""
        _ = self.shows
        self.search(Query(int(self.index.images["id"][0].as_py())), 1, None, None)

    @property
    def caption(self) -> str:
        """One-line description of the collection."""
        config, labels = self.index.model.config, self.index.labels
        parts = [counted(len(self.index), "image")]
        parts += [counted(len(labels), "class", "classes")] if labels else []
        parts += [f"{config.backbone}, pooling {config.pooling}, {self.index.header.dim} numbers"]
        return " · ".join(parts)

    @cached_property
    def shows(self) -> list[tuple[str, str]]:
        """Ways to show images, with their titles."""
        # Tested on a picture that varies: the weights of average pooling are constant even there.
        some = Image.radial_gradient("L").resize((2 * self.index.model.preprocessing.crop,) * 2)
        weights = self.index.embed(some).weights
        differ = weights is not None and float(weights.max() - weights.min()) > 1e-6
        return [
            ("plain", "Image"),
            *([("weights", "Pooling weights")] if differ else []),
            *([("match", "Match")] if self.index.explains else []),
        ]

    def image(self, id: int) -> dict[str, Any]:
        """Describe an indexed image.

        Raises:
            MissingError: If no image has this id.
        """
        try:
            row = self.index.row(id)
        except UserError as error:
            raise MissingError(f"there is no image {id}") from error
        names = ("path", "label", "width", "height", "content_hash")
        values = {name: self.index.images[name][row].as_py() for name in names}
        return {"id": id, **values, "thumbnail": thumbnail_address(id)}

    def attributes(self, id: int, most: int = 12) -> list[dict[str, Any]]:
        """Strongest prototypes of an image, with the share that each receives."""
        z = self.index.images["z"][self.index.row(id)].as_py()
        if z is None:
            return []
        order = np.argsort(-np.asarray(z), kind="stable")[:most].tolist()
        return [{"prototype": place, "share": float(z[place])} for place in order]

    def sample(self, seed: int, count: int) -> list[dict[str, Any]]:
        """Random images that depend on the seed, in index order."""
        ids = self.index.images["id"].to_numpy()
        return [self.image(int(ids[row])) for row in _drawn(len(ids), count, seed)]

    def page(self, offset: int, limit: int, label: str | None) -> list[dict[str, Any]]:
        """Images in index order.

        Raises:
            QueryError: If no image has this label; the message suggests similar labels.
        """
        ids = self.index.images["id"].to_numpy()
        if label is not None:
            accepted_labels({"label": label}, self.index.labels)
            ids = ids[np.array(self.index.images["label"].to_pylist(), object) == label]
        return [self.image(int(id)) for id in ids[offset : offset + limit]]

    def load(self, id: int) -> Image.Image:
        """Load an indexed image.

        Raises:
            MissingError: If it cannot be read, or is a link to something that was not indexed.
        """
        try:
            self._check_link(id)
            return self.index.load(id)
        except (BrokenImageError, OSError) as error:  # whose messages reveal the path
            raise MissingError(f"image {id} can no longer be read") from error

    def _check_link(self, id: int) -> None:
        """Refuse a link out of the indexed folder, unless its target was indexed."""
        path = self.index.path(id)
        if path is None or (self.index.header.allow_outside and self._listed_outside(id)):
            return
        if not path.resolve().is_relative_to(self.root) and not self._is_indexed(path, id):
            raise MissingError(
                f"image {id} is a link out of the indexed folder, to another file than was indexed"
            )

    def _is_indexed(self, path: Path, id: int) -> bool:
        row = self.index.images.slice(self.index.row(id), 1).to_pylist()[0]
        if not path.is_file() or path.stat().st_size != row["bytes"]:
            return False
        return bool(file_sha256(path) == row["content_hash"])

    def _listed_outside(self, id: int) -> bool:
        return Path(self.image(id)["path"]).is_absolute()

    def size(self, source: int | str) -> tuple[int, int]:
        """Width and height of a query image.

        Raises:
            MissingError: If the image does not exist.
        """
        if isinstance(source, int):
            known = self.image(source)
            return known["width"], known["height"]
        upload = self._upload(source)
        return upload.width, upload.height

    def pixels(self, source: int | str) -> Image.Image:
        """Load a query image."""
        return self.load(source) if isinstance(source, int) else self._upload(source).image()

    def _upload(self, token: str) -> Upload:
        upload = self.uploads.get(token)
        if upload is None:
            raise MissingError("this upload is no longer kept: upload the image again")
        return upload

    def _embedded(self, query: Query) -> Embedded:
        return self.index.embed(self.pixels(query.source), query.box)

    def search(
        self, query: Query, k: int, label: str | None, threshold: float | None
    ) -> list[Match]:
        """Find the most similar images; a whole indexed image does not find itself."""
        where = None if label is None else {"label": label}
        asked: int | Embedded
        if isinstance(query.source, int) and query.box is None:
            asked = query.source
        else:
            asked = self.embedded(query)
        return self.index.search(asked, k, where=where, threshold=threshold)

    def _explanation(self, query: Query, id: int) -> Explanation:
        if not self.index.explains:
            pooling = self.index.model.config.pooling
            raise MissingError(f"the pooling {pooling} cannot say where a match comes from")
        return explain_match(self.index.model, self.embedded(query), self.embedded(Query(id)))

    def picture(
        self,
        query: Query,
        size: str,
        show: str,
        id: int | None = None,
        side: str = "query",
        prototype: int | None = None,
    ) -> bytes:
        """Draw a picture of an image, as JPEG.

        Args:
            query: The image, or the query of a match.
            size: A name in :data:`~sumpool.serve.pictures.SIDES`.
            show: "plain", "weights", "match" or "patch".
            id: The result of a match.
            side: Which image of a match to draw: "query" or "result".
            prototype: The prototype of a patch.

        Raises:
            MissingError: If the image does not exist, or there is nothing to lay over it.
        """
        return self._pictures[size](query, SIDES[size], show, id, side, prototype)

    def _picture(
        self, query: Query, length: int, show: str, id: int | None, side: str, prototype: int | None
    ) -> bytes:
        if show == "plain":
            return self._plain(query, length)
        if show == "patch":
            assert prototype is not None
            return encode(self._patch(query, prototype, length))
        if show == "weights":
            embedded = self.embedded(query)
            if embedded.weights is None:
                raise MissingError("the pooling has no weights to lay over images")
            weights, view, shown = embedded.weights.numpy(), embedded.view, query.source
            weights = weights * weights.size  # 1 is the uniform weight
            top = scale_top([weights])
        else:
            assert id is not None
            found = self.explanation(query, id)
            top = max(float(found.query_map.max()), float(found.result_map.max()))
            weights, view, shown = found.query_map, found.query, query.source
            if side == "result":
                weights, view, shown = found.result_map, found.result, id
        return encode(heat(self.pixels(shown), view.window, weights, top, length))

    def _plain(self, query: Query, length: int) -> bytes:
        if isinstance(query.source, int) and length == SIDE:
            try:
                self._check_link(query.source)
                return self.index.thumbnail(query.source)
            except (BrokenImageError, OSError) as error:  # whose messages reveal the path
                raise MissingError(f"image {query.source} can no longer be read") from error
        return encode(shrunk(self.pixels(query.source), length))

    def _patch(self, query: Query, prototype: int, length: int) -> Image.Image:
        self.check_prototype(prototype)
        embedded = self.embedded(query)
        plan = getattr(self.index.model.pooling, "plan", None)
        with torch.no_grad():
            fed = None if plan is None else feeding([plan(embedded.features)])
        if fed is None:  # no positions to point at
            return shrunk(embedded.view.image, length)
        cell = divmod(int(fed.cells[0, prototype]), fed.grid[1])
        return patch(embedded.view, cell, fed.grid, length)

    def check_prototype(self, number: int) -> None:
        """Check that a prototype exists.

        Raises:
            MissingError: If it does not; the message says how many there are.
        """
        if not 0 <= number < self.index.prototypes:
            raise MissingError(
                f"there is no prototype {number}: "
                f"the model has {counted(self.index.prototypes, 'prototype')}"
            )

    @cached_property
    def shares(self) -> NDArray[np.float32]:
        """Mean share that each prototype receives of all images; empty without prototypes."""
        attributes = self.index.attributes
        return np.zeros(0, np.float32) if attributes is None else attributes.mean(0)

    @cached_property
    def strongest(self) -> list[int]:
        """For each prototype, the id of the image in which it is strongest."""
        ids, attributes = self.index.images["id"].to_numpy(), self.index.attributes
        return [] if attributes is None else ids[attributes.argmax(0)].tolist()

    @cached_property
    def plane(self) -> tuple[list[dict[str, Any]], str]:
        """Points of the map, with coordinates from 0 to 1, and a caption."""
        count = len(self.index)
        rows = _drawn(count, MOST_POINTS, SEED)
        if len(rows) < 3:
            raise MissingError(f"there is no map of {counted(count, 'image')}")
        points, method = flatten_to_plane(np.asarray(self.index.vectors[rows]), SEED)
        low, high = points.min(0), points.max(0)
        places = (points - low) / np.maximum(high - low, 1e-12)
        ids = self.index.images["id"].to_numpy()
        of_all = "" if len(rows) == count else f" of {count:,}, drawn at random"
        caption = f"{method} of {counted(len(rows), 'image')}{of_all}: near means similar"
        return [
            {"x": round(float(x), 4), "y": round(float(y), 4), **self.image(int(ids[row]))}
            for (x, y), row in zip(places, rows, strict=True)
        ], caption

    def _duplicates(self, threshold: float) -> list[tuple[bool, float, tuple[int, ...]]]:
        if len(self.index) > MOST_COMPARED:
            raise MissingError(
                f"more than {MOST_COMPARED:,} images are not compared here: "
                "sumpool duplicates does it"
            )
        return [(it.exact, it.similarity, it.ids) for it in self.index.duplicates(threshold)]


def thumbnail_address(id: int) -> str:
    """URL of the thumbnail of an indexed image."""
    return f"/picture?image={id}&size=small"


def _drawn(count: int, most: int, seed: int) -> NDArray[np.int64]:
    """Draw at most ``most`` of ``count`` rows, in order."""
    drawn = np.random.default_rng(seed).choice(count, min(count, most), replace=False)
    return np.sort(drawn)
