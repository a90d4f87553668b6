"""Answers of the JSON API, which the pages show too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from sumpool.search import Match
from sumpool.search.answers import verdict
from sumpool.search.duplicates import NEAR
from sumpool.serve.arguments import Arguments
from sumpool.serve.collection import Collection, Query
from sumpool.serve.pictures import SIDES
from sumpool.serve.uploads import Limits, Upload, check_upload, upload_formats
from sumpool.serve.worker import Worker

#: Arguments that define a query.
QUERY = ("image", "upload", "box")
#: Kinds of pictures, and the arguments that each accepts.
PICTURES = {
    "plain": (),
    "weights": ("box",),
    "match": ("box", "with", "side"),
    "patch": ("prototype",),
}
#: Default and maximum number of results.
RESULTS, MOST_RESULTS = 24, 200
#: Maximum number of duplicate groups in an answer, and of images in each.
MOST_GROUPS, MOST_IN_GROUP = 50, 60
#: Seconds that an upload may take.
UPLOAD_SECONDS = 60


@dataclass(frozen=True)
class Views:
    """The JSON API of a collection.

    Attributes:
        collection: The collection.
        limits: Limits on uploads.
        model: Runs the model, one call at a time.
        files: Reads images, and searches by known vectors.
        slow: Runs calls that take seconds: the map, duplicates.
    """

    collection: Collection
    limits: Limits
    model: Worker
    files: Worker
    slow: Worker

    async def index(self, request: Request) -> dict[str, Any]:
        """Description of the index."""
        Arguments(request, ())
        index = self.collection.index
        config, threshold = index.model.config, index.threshold
        return {
            "name": index.folder.resolve().name,
            "images": len(index),
            "labels": len(index.labels),
            "prototypes": index.prototypes,
            "dimensions": index.header.dim,
            "backbone": config.backbone,
            "pooling": config.pooling,
            "threshold": threshold.value,
            "threshold_meaning": threshold.meaning,
            "shows": [name for name, _ in self.collection.shows],
            "upload_bytes": self.limits.upload_bytes,
            "upload_pixels": self.limits.pixels,
            "upload_formats": upload_formats(),
        }

    async def labels(self, request: Request) -> dict[str, Any]:
        """The classes of the images."""
        Arguments(request, ())
        return {"labels": list(self.collection.index.labels)}

    async def images(self, request: Request) -> dict[str, Any]:
        """Images in index order."""
        arguments = Arguments(request, ("offset", "limit", "label"))
        offset = arguments.whole("offset", 0, 0, 10**12)
        limit = arguments.whole("limit", 100, 1, 1000)
        label = arguments.text("label")
        return {"images": await self.files.run(self.collection.page, offset, limit, label)}

    async def image(self, request: Request, more: Sequence[str] = ()) -> dict[str, Any]:
        """One image; pages accept ``more`` argument names."""
        Arguments(request, more)
        id = request.path_params["id"]
        image = self.collection.image(id)
        return {**image, "attributes": self.collection.attributes(id)}

    async def search(self, request: Request, more: Sequence[str] = ()) -> dict[str, Any]:
        """The most similar images; the query is in the URL, or in the body of a POST.

        Pages accept ``more`` argument names.
        """
        posted = request.method == "POST"
        accepted = ("k", "label", "threshold", "box", *(() if posted else QUERY[:2]))
        arguments = Arguments(request, (*accepted, *more))
        if posted:
            query = self._query_of((await self._posted(request)).token, arguments)
        else:
            query = self.query(arguments)
        k = arguments.whole("k", RESULTS, 1, MOST_RESULTS)
        label = arguments.text("label")
        least = arguments.share("threshold", -1.0) if "threshold" in arguments else None
        found = await self.find(query, k, label, least)
        threshold = self.collection.index.threshold
        return {
            "query": self.described(query),
            "threshold": threshold.value,
            "verdict": verdict(found, threshold, least),
            "results": [self._result(it) for it in found],
        }

    async def find(
        self, query: Query, k: int, label: str | None = None, least: float | None = None
    ) -> list[Match]:
        """Search, without waiting for the model if the vector of the query is known."""
        known = isinstance(query.source, int) and query.box is None
        worker = self.files if known else self.model
        return await worker.run(self.collection.search, query, k, label, least)

    def _result(self, match: Match) -> dict[str, Any]:
        image = self.collection.image(match.id)
        similar = match.similarity >= self.collection.index.threshold.value
        return {**image, "similarity": match.similarity, "similar": similar}

    async def upload(self, request: Request) -> dict[str, Any]:
        """Keep the image in the body of a POST for later queries."""
        Arguments(request, ())
        upload = await self._posted(request)
        return {
            "upload": upload.token,
            "width": upload.width,
            "height": upload.height,
            "address": f"/search?upload={upload.token}",
        }

    async def _posted(self, request: Request) -> Upload:
        if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise HTTPException(
                415, "send the image itself, not a form: curl --data-binary @photo.jpg, not -F"
            )
        return await self.receive(request.body())

    async def receive(self, content: Awaitable[bytes]) -> Upload:
        """Wait for an uploaded file, check it and keep it."""
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                received = await content
        except TimeoutError as error:
            raise HTTPException(408, f"the upload took longer than {UPLOAD_SECONDS} s") from error
        upload = await self.files.run(check_upload, received, self.limits)
        self.collection.uploads.add(upload)
        return upload

    async def match(self, request: Request) -> dict[str, Any]:
        """Explanation of a match: what each position of either image adds to the similarity."""
        arguments = Arguments(request, (*QUERY, "with"))
        query, id = self.query(arguments), self.other(arguments)
        found = await self.model.run(self.collection.explanation, query, id)
        return {
            "query": self.described(query),
            "result": self.collection.image(id),
            "similarity": found.similarity,
            "query_map": found.query_map.tolist(),
            "query_window": list(found.query.window),
            "result_map": found.result_map.tolist(),
            "result_window": list(found.result.window),
        }

    async def prototypes(self, request: Request) -> dict[str, Any]:
        """All prototypes, the most used first."""
        Arguments(request, ())
        shares = await self.files.run(lambda: self.collection.shares)
        order = shares.argsort(kind="stable")[::-1].tolist()
        return {"prototypes": [{"prototype": it, "share": float(shares[it])} for it in order]}

    async def prototype(self, request: Request) -> dict[str, Any]:
        """The images in which a prototype is strongest."""
        arguments = Arguments(request, ("k",))
        number = request.path_params["number"]
        k = arguments.whole("k", RESULTS, 1, MOST_RESULTS)
        self.collection.check_prototype(number)
        found = await self.files.run(self.collection.index.search_prototype, number, k)
        shares = await self.files.run(lambda: self.collection.shares)
        results = [
            {
                **self.collection.image(it.id),
                "strength": it.similarity,
                "patch": f"/picture?image={it.id}&show=patch&prototype={number}&size=small",
            }
            for it in found
        ]
        return {"prototype": number, "share": float(shares[number]), "results": results}

    async def map(self, request: Request) -> dict[str, Any]:
        """Two-dimensional map of the collection."""
        Arguments(request, ())
        points, caption = await self.slow.run(lambda: self.collection.plane)
        return {"caption": caption, "points": points}

    async def duplicates(self, request: Request) -> dict[str, Any]:
        """Groups of duplicates and near-duplicates."""
        arguments = Arguments(request, ("threshold",))
        threshold = arguments.share("threshold", NEAR)
        if threshold <= 0:
            raise HTTPException(400, f"threshold must be above 0, got {threshold}")
        groups = await self.slow.run(self.collection.duplicates, threshold)
        shown = [
            {
                "exact": exact,
                "similarity": similarity,
                "count": len(ids),
                "images": [self.collection.image(id) for id in ids[:MOST_IN_GROUP]],
            }
            for exact, similarity, ids in groups[:MOST_GROUPS]
        ]
        return {"threshold": threshold, "count": len(groups), "groups": shown}

    async def picture(self, request: Request) -> bytes:
        """A picture of an image, as JPEG."""
        both = ("image", "upload", "size", "show")
        arguments = Arguments(request, (*both, "box", "with", "side", "prototype"))
        show = arguments.choice("show", tuple(PICTURES), "plain")
        Arguments(request, (*both, *PICTURES[show]))
        size = arguments.choice("size", tuple(SIDES), "large")
        query = self.query(arguments)
        if show == "match":
            side = arguments.choice("side", ("query", "result"), "query")
            other = self.other(arguments)
            return await self.model.run(self.collection.picture, query, size, show, other, side)
        if show == "patch":
            if "prototype" not in arguments:
                raise HTTPException(400, "prototype is missing: the one whose patch is shown")
            number = arguments.whole("prototype", 0, 0, 10**9)
            self.collection.check_prototype(number)
            return await self.model.run(
                self.collection.picture, query, size, show, prototype=number
            )
        worker = self.files if show == "plain" else self.model
        return await worker.run(self.collection.picture, query, size, show)

    def query(self, arguments: Arguments) -> Query:
        """Parse the query."""
        if ("image" in arguments) == ("upload" in arguments):
            raise HTTPException(400, "give either image or upload")
        token = arguments.text("upload")
        source = arguments.whole("image", 0, 0, 10**12) if token is None else token
        return self._query_of(source, arguments)

    def _query_of(self, source: int | str, arguments: Arguments) -> Query:
        return Query(source, arguments.box("box", *self.collection.size(source)))

    def other(self, arguments: Arguments) -> int:
        """Parse the id of the image that a query is compared with."""
        if "with" not in arguments:
            raise HTTPException(400, "with is missing: the image to compare with")
        id = arguments.whole("with", 0, 0, 10**12)
        self.collection.image(id)
        return id

    def described(self, query: Query) -> dict[str, Any]:
        """Describe a query in its answer."""
        width, height = self.collection.size(query.source)
        known = self.collection.image(query.source) if isinstance(query.source, int) else {}
        return {
            "image": known.get("id"),
            "upload": None if known else query.source,
            "path": known.get("path"),
            "label": known.get("label"),
            "width": width,
            "height": height,
            "box": None if query.box is None else list(query.box),
        }


def address(path: str, query: Query, more: Mapping[str, Any] | None = None) -> str:
    """Build the URL of ``path`` with a query and further arguments; None values are omitted."""
    kind = "image" if isinstance(query.source, int) else "upload"
    values = {
        kind: query.source,
        "box": query.box and ",".join(map(str, query.box)),
        **(more or {}),
    }
    given = {name: value for name, value in values.items() if value is not None}
    return f"{path}?{urlencode(given, safe=',')}"
