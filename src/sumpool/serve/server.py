"""The server: listens on a port and stops cleanly."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from sumpool.search import Index
from sumpool.serve.app import build_app
from sumpool.serve.security import SHORTEST_TOKEN, is_loopback
from sumpool.serve.uploads import Limits
from sumpool.system.errors import UserError

#: Maximum number of connections; further ones are answered with status 503.
MOST_CONNECTIONS = 1000
#: Seconds that requests have to finish when the server is stopped.
GRACE = 5


class ServeError(UserError):
    """The server cannot start; the message says why."""


def check_access(host: str, token: str | None) -> None:
    """Check that other machines can connect only with a token.

    Raises:
        ServeError: If the token is missing or too short.
    """
    if token is None and not is_loopback(host):
        raise ServeError(
            f"other machines can connect to host {host}: give them a token of at least "
            f"{SHORTEST_TOKEN} characters with --token, or leave --host at 127.0.0.1"
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ServeError(
            f"token must have at least {SHORTEST_TOKEN} characters, got {len(token)}: "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        )


def serve(
    index: Index,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve ``index`` until SIGINT or SIGTERM, then finish running requests and return.

    Args:
        index: The index.
        host: Address to listen on.
        port: Port; 0 for any free one.
        token: Token that visitors need; optional only if ``host`` is a loopback address.
        limits: Limits on uploads.
        ready: Called with the URL once the server accepts requests.

    Raises:
        ServeError: If the port cannot be opened, or a token is missing.
        UserError: If the file of the store is missing.
    """
    check_access(host, token)
    index.search(int(index.images["id"][0].as_py()), k=1)  # raises if the store has a problem
    name = f"[{host}]" if ":" in host else host
    app = build_app(index, token=token, limits=limits, any_host=not is_loopback(host), hosts=[name])
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        # X-Forwarded headers are not trusted: visitors could forge them.
        proxy_headers=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )
    with _listening(host, port) as listening:
        address = f"http://{name}:{listening.getsockname()[1]}/"
        server = _Server(config, lambda: ready(address) if ready else None)
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:  # re-raised by uvicorn once it has stopped
            return


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ServeError(f"port must be a whole number from 0 to 65535, got {port}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or error
        raise ServeError(f"cannot listen on {host}, port {port}: {reason}") from error
