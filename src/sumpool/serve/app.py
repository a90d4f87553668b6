"""The web application: routes, limits, errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from sumpool.search import Index
from sumpool.search.queries import QueryError
from sumpool.serve.collection import Collection, MissingError
from sumpool.serve.pages import Pages
from sumpool.serve.security import LOOPBACK_NAMES, SafeHeaders, SameOrigin, TokenRequired
from sumpool.serve.uploads import Limits, UploadError, Uploads
from sumpool.serve.views import Views
from sumpool.serve.worker import BusyError, Worker

#: Overhead of a form around its file, in bytes.
FORM = 16 * 2**10
#: Seconds that browsers cache pictures.
PICTURE_AGE = 600

logger = logging.getLogger(__name__)


class _Whole(IntegerConvertor):
    """Numbers in paths; others are not found."""

    regex = "[0-9]{1,15}"


register_url_convertor("whole", _Whole())
View = Callable[[Request], Awaitable[dict[str, Any]]]


def build_app(
    index: Index,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    any_host: bool = False,
    hosts: Sequence[str] = (),
    waiting: int = 128,
) -> ASGIApp:
    """Build the application that serves ``index``.

    Args:
        index: The index.
        token: Token that visitors need, if any.
        limits: Limits on uploads.
        any_host: Whether to accept host names other than those of the loopback interface. If not,
            requests for other names are rejected, so that another site cannot point a name of its
            own at this server.
        hosts: Further host names to accept.
        waiting: Maximum number of waiting searches; further ones are answered with status 503.

    Raises:
        ValueError: If ``any_host`` is set without a token.
    """
    if any_host and token is None:
        raise ValueError("token must be given where any_host is")
    limits = limits or Limits()
    model = Worker("model", threads=1, most=waiting)
    files = Worker("files", threads=2, most=8 * waiting)
    slow = Worker("slow", threads=1, most=16)
    collection = Collection(index, Uploads(limits.kept_bytes))
    views = Views(collection, limits, model, files, slow)
    pages = Pages(views)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await model.run(collection.warm)
        yield
        for worker in (model, files, slow):
            worker.close()

    inner: ASGIApp = Router([*_json_routes(views), *_page_routes(pages)])
    if token is not None:
        inner = TokenRequired(inner, token)
    trusted = Middleware(
        TrustedHostMiddleware,
        allowed_hosts=["*"] if any_host else [*LOOPBACK_NAMES, *hosts],
        www_redirect=False,
    )
    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(packages=[("sumpool.serve", "static")])),
            Mount("", SameOrigin(inner)),
        ],
        middleware=[trusted],
        exception_handlers=_error_handlers(pages),
        lifespan=lifespan,
        max_body_size=limits.upload_bytes + FORM,
    )
    return SafeHeaders(app)


def _json_routes(views: Views) -> list[Route]:
    async def openapi(request: Request) -> Response:
        text = resources.files("sumpool.serve").joinpath("openapi.json").read_bytes()
        return Response(text, media_type="application/json")

    async def picture(request: Request) -> Response:
        headers = {"Cache-Control": f"private, max-age={PICTURE_AGE}"}
        return Response(await views.picture(request), media_type="image/jpeg", headers=headers)

    return [
        Route("/api/openapi.json", openapi),
        Route("/api/index", _json(views.index)),
        Route("/api/labels", _json(views.labels)),
        Route("/api/images", _json(views.images)),
        Route("/api/images/{id:whole}", _json(views.image)),
        Route("/api/search", _json(views.search), methods=["GET", "POST"]),
        Route("/api/uploads", _json(views.upload), methods=["POST"]),
        Route("/api/match", _json(views.match)),
        Route("/api/prototypes", _json(views.prototypes)),
        Route("/api/prototypes/{number:whole}", _json(views.prototype)),
        Route("/api/map", _json(views.map)),
        Route("/api/duplicates", _json(views.duplicates)),
        Route("/picture", picture),
    ]


def _json(view: View) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return JSONResponse(await view(request))

    return answer


def _page_routes(pages: Pages) -> list[Route]:
    return [
        Route("/", pages.home),
        Route("/upload", pages.upload, methods=["POST"]),
        Route("/search", pages.search),
        Route("/image/{id:whole}", pages.image),
        Route("/match", pages.match),
        Route("/prototypes", pages.prototypes),
        Route("/prototype/{number:whole}", pages.prototype),
        Route("/map", pages.map),
        Route("/duplicates", pages.duplicates),
    ]


def _error_handlers(pages: Pages) -> dict[Any, Any]:
    def answer(request: Request, status: int, message: str, **headers: str) -> Response:
        if request.url.path.startswith(("/api/", "/picture")):
            return JSONResponse({"error": message}, status, headers)
        page = pages.error(status, HTTPStatus(status).phrase, message)
        return HTMLResponse(page, status, headers)

    async def http(request: Request, error: HTTPException) -> Response:
        return answer(request, error.status_code, error.detail, **(error.headers or {}))

    async def missing(request: Request, error: MissingError) -> Response:
        return answer(request, 404, str(error))

    async def wrong(request: Request, error: UploadError | QueryError) -> Response:
        return answer(request, 400, str(error))

    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return answer(request, 400, "the connection was closed before the request was complete")

    async def busy(request: Request, error: BusyError) -> Response:
        message = "the server is busy: try again in some seconds"
        return answer(request, 503, message, **{"Retry-After": "5"})

    async def defect(request: Request, error: Exception) -> Response:
        # Starlette re-raises the error, which logs it. The response must not name files.
        return answer(request, 500, "something went wrong; see the log of the server")

    return {
        HTTPException: http,
        MissingError: missing,
        UploadError: wrong,
        QueryError: wrong,
        ClientDisconnect: gone,
        BusyError: busy,
        Exception: defect,
    }
