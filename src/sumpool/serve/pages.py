"""HTML pages, rendered from the answers of the JSON API."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sumpool.report.html_page import templates
from sumpool.report.overlays import scale_stops
from sumpool.search.filters import accepted_labels
from sumpool.serve.arguments import Arguments
from sumpool.serve.collection import Query
from sumpool.serve.uploads import upload_formats
from sumpool.serve.views import MOST_GROUPS, QUERY, RESULTS, Views, address
from sumpool.system.wording import counted

#: Images on the home page, and similar images on an image page.
SAMPLE, SIMILAR = 24, 12
#: Choices for the number of results.
COUNTS = (12, 24, 48, 96)
#: Template values for visitors without a token, which reveal nothing about the collection.
STRANGER = {"name": "sumpool", "pages": (), "caption": "", "limits": {"upload_bytes": 0}}


class Pages:
    """The pages of a collection.

    Args:
        views: The JSON API.
    """

    def __init__(self, views: Views) -> None:
        self.views = views
        self.collection = views.collection

    @cached_property
    def site(self) -> dict[str, Any]:
        """Template values shared by all pages."""
        index, limits = self.collection.index, self.views.limits
        prototypes = [("/prototypes", "Prototypes")] if index.prototypes else []
        return {
            "name": index.folder.resolve().name,
            "caption": self.collection.caption,
            "limits": {"upload_bytes": limits.upload_bytes},
            "upload_caption": f"{', '.join(upload_formats())}, up to "
            f"{limits.upload_bytes / 2**20:.0f} MiB and {limits.pixels / 1e6:.0f} megapixels. "
            "Uploads stay in the memory of the server.",
            "labels": index.labels,
            "stops": scale_stops(),
            "pages": [("/", "Search"), ("/map", "Map"), *prototypes, ("/duplicates", "Duplicates")],
            "no_prototypes": f"The pooling {index.model.config.pooling} has no prototypes.",
        }

    def render(self, template: str, request: Request, title: str, **values: Any) -> Response:
        """Render a template."""
        text = templates("sumpool.serve").get_template(template)
        page = text.render(site=self.site, current=request.url.path, title=title, **values)
        return HTMLResponse(page)

    async def home(self, request: Request) -> Response:
        """Home page: an upload area, and images to start from."""
        seed = Arguments(request, ("seed",)).whole("seed", 0, 0, 10**9)
        images = await self.views.files.run(self.collection.sample, seed, SAMPLE)
        title = f"Search {counted(len(self.collection.index), 'image')}"
        return self.render("home.html", request, title, images=images, seed=seed)

    async def upload(self, request: Request) -> Response:
        """Keep an uploaded file and redirect to its results."""
        upload = await self.views.receive(self._file(request))
        return RedirectResponse(f"/search?upload={upload.token}", 303)

    async def _file(self, request: Request) -> bytes:
        missing = HTTPException(400, "file is missing: choose an image file")
        kind = request.headers.get("content-type", "").lower()
        if not kind.startswith("multipart/form-data"):
            raise missing
        parser = MultiPartParser(request.headers, request.stream(), max_files=1, max_fields=1)
        parser.spool_max_size = self.views.limits.upload_bytes  # larger ones would go to the disk
        try:
            form = await parser.parse()
        except MultiPartException as error:
            raise HTTPException(400, error.message) from error
        try:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise missing
            return await file.read()
        finally:
            await form.close()

    async def search(self, request: Request) -> Response:
        """Results of a query."""
        found = await self.views.search(request, ("show",))
        arguments = Arguments(
            request, ("image", "upload", "box", "k", "label", "threshold", "show")
        )
        shows = self.collection.shows
        show = arguments.choice("show", [name for name, _ in shows], "plain")
        query = self.views.query(arguments)
        k = arguments.whole("k", RESULTS, 1, 10**9)
        for image in found["results"]:
            image["why"] = self._why(query, image["id"])
            image["shown"] = _shown(query, image["id"], show)
        whole = Query(query.source)
        kind = "image" if isinstance(query.source, int) else "upload"
        box = query.box
        what = found["query"]["label"] or found["query"]["path"] or "your image"
        return self.render(
            "search.html",
            request,
            f"Similar to {'a part of ' if box else ''}{what}",
            **{
                **found,
                "query": {
                    **found["query"],
                    "kind": kind,
                    "value": query.source,
                    "picture": address("/picture", query, {"show": show})
                    if show == "weights"
                    else address("/picture", whole),
                    "whole": address("/search", whole, {"k": k, "show": show}),
                },
                "similar": any(it["similar"] for it in found["results"]),
                "k": k,
                "counts": sorted({*COUNTS, k}),
                "label": arguments.text("label"),
                "least": arguments.text("threshold"),
                "shows": shows,
                "show": show,
            },
        )

    def _why(self, query: Query, id: int) -> str | None:
        explains = any(name == "match" for name, _ in self.collection.shows)
        return address("/match", query, {"with": id}) if explains else None

    async def image(self, request: Request) -> Response:
        """Page of one image."""
        found = await self.views.image(request, ("show",))
        shows = [it for it in self.collection.shows if it[0] != "match"]
        arguments = Arguments(request, ("show",))
        show = arguments.choice("show", [name for name, _ in shows], "plain")
        query = Query(found["id"])
        similar = await self.views.find(query, SIMILAR)
        near = [{**self.collection.image(it.id), "similarity": it.similarity} for it in similar]
        for it in near:
            it["why"] = self._why(query, it["id"])
        return self.render(
            "image.html",
            request,
            found["label"] or found["path"],
            image=found,
            attributes=found["attributes"],
            picture=address("/picture", query, {"show": show}),
            similar=near,
            shows=shows,
            show=show,
        )

    async def match(self, request: Request) -> Response:
        """Explanation of a match."""
        found = await self.views.match(request)
        query = self.views.query(Arguments(request, (*QUERY, "with")))
        id = found["result"]["id"]
        heat = {"show": "match", "with": id}
        found["query"] |= {
            "picture": address("/picture", query, heat),
            "address": address("/search", query, {"show": "match"}),
        }
        found["result"]["picture"] = address("/picture", query, {**heat, "side": "result"})
        return self.render("match.html", request, "Why these two match", **found)

    async def prototypes(self, request: Request) -> Response:
        """List of all prototypes."""
        found = await self.views.prototypes(request)
        best = await self.views.files.run(lambda: self.collection.strongest)
        for it in found["prototypes"]:
            number = it["prototype"]
            it["thumbnail"] = (
                f"/picture?image={best[number]}&show=patch&prototype={number}&size=small"
            )
        return self.render("prototypes.html", request, "Prototypes", **found)

    async def prototype(self, request: Request) -> Response:
        """Page of one prototype."""
        found = await self.views.prototype(request)
        number = found["prototype"]
        return self.render(
            "prototype.html",
            request,
            f"Prototype {number}",
            **found,
            number=number,
            count=self.collection.index.prototypes,
        )

    async def map(self, request: Request) -> Response:
        """Map of the collection; its points come from the JSON API."""
        label = Arguments(request, ("label", "image", "view")).text("label")
        if label is not None:
            accepted_labels({"label": label}, self.collection.index.labels)
        return self.render("map.html", request, "Map", label=label)

    async def duplicates(self, request: Request) -> Response:
        """Groups of duplicates."""
        found = await self.views.duplicates(request)
        count = found["count"]
        for group in found["groups"]:
            near = f"at least {group['similarity']:.3f} similar to another of them"
            how = "with the same content" if group["exact"] else near
            group["kind"] = f"{counted(group['count'], 'image')} {how}"
        verdict = f"{counted(count, 'group')} of duplicate or near-duplicate images."
        more = f"The first {MOST_GROUPS} are shown." if count > MOST_GROUPS else ""
        return self.render(
            "duplicates.html", request, "Duplicates", verdict=verdict, more=more, **found
        )

    def error(self, status: int, title: str, message: str) -> str:
        """Render an error; without a token (401), it reveals nothing about the collection."""
        template = templates("sumpool.serve").get_template("error.html")
        site = STRANGER if status == 401 else self.site
        return template.render(site=site, current=None, title=title, status=status, error=message)


def _shown(query: Query, id: int, show: str) -> str:
    if show == "match":
        more = {"show": show, "with": id, "side": "result", "size": "small"}
        return address("/picture", query, more)
    return address("/picture", Query(id), {"show": show, "size": "small"})
