"""Access control and security headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Headers sent with every response.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer, which makes browsers hide the origin of an upload.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: Host names under which a browser reaches its own machine.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "sumpool_token"
#: Seconds that a browser stays signed in.
COOKIE_AGE = 30 * 24 * 3600
SHORTEST_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to ``host``.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SafeHeaders:
    """Middleware that adds :data:`HEADERS` to every response, server errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "private, no-cache")
            await send(message)

        await self.app(scope, receive, send_safely)


class SameOrigin:
    """Middleware that rejects modifying requests from pages of other sites."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            headers = Headers(scope=scope)
            site, origin = headers.get("sec-fetch-site"), headers.get("origin")
            foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
            if site not in (None, "same-origin", "none") or foreign:
                raise HTTPException(403, "uploads from pages of other sites are refused")
        await self.app(scope, receive, send)


class TokenRequired:
    """Middleware that requires a token: as a bearer token, as a cookie, or once in the URL.

    Args:
        app: The protected application.
        token: The token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self._token = token.encode()
        # The cookie does not reveal the token.
        self._cookie = hmac.digest(self._token, COOKIE.encode(), hashlib.sha256).hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an authorized request, exchange a token in the URL for a cookie, or reject."""
        if scope["type"] != "http" or scope["path"].startswith("/static/"):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        cookie = request.cookies.get(COOKIE, "")
        if hmac.compare_digest(cookie.encode(), self._cookie.encode()) or (
            scheme.lower() == "bearer" and self._is_token(bearer)
        ):
            await self.app(scope, receive, send)
        elif self._is_token(request.query_params.get("token", "")):
            clean: URL = request.url.remove_query_params("token")
            # Relative, so that the Host header cannot redirect elsewhere.
            response = RedirectResponse(
                "/" + clean.path.lstrip("/") + (f"?{clean.query}" if clean.query else ""), 303
            )
            response.set_cookie(
                COOKIE,
                self._cookie,
                max_age=COOKIE_AGE,
                httponly=True,
                samesite="lax",
                secure=request.url.scheme == "https",
            )
            await response(scope, receive, send)
        else:
            raise HTTPException(401, "a token is required", {"WWW-Authenticate": "Bearer"})

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)
