"""Connection to a Ray cluster, which may be started on this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from sumpool.system.environment import preserved_environment
from sumpool.system.extras import import_extra
from sumpool.system.ray_nodes import ClusterError

#: Environment variables of Ray for usage statistics and for token authentication.
USAGE, AUTH = "RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE"
#: Seconds within which the machine at an address must answer.
KNOCK = 10.0
#: Bytes of the object store of a local cluster: cells and their results are small.
STORE_BYTES = 100_000_000


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to Ray inside the ``with``; a cluster started here is stopped afterwards.

    Raises:
        ClusterError: If Ray is not installed, or cannot be used at ``address``.
    """
    ray = import_extra("ray", "ray", "a Ray cluster needs the package", ClusterError)
    if ray.is_initialized():
        if address is not None:
            raise ClusterError(
                f"address is {address!r}, but this process is connected to a Ray cluster already: "
                "leave the address out to use that one"
            )
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "error"}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    elif ":" in address:
        _knock(address)
    # Ray sets environment variables of this process, which would affect the next cluster.
    with preserved_environment(USAGE, AUTH), _own_signals() as handler:
        try:
            _init(ray, options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            hint = "" if AUTH in os.environ else f" (with tokens, {AUTH}=token must be set)"
            raise ClusterError(
                f"Ray cannot be used at address {address!r}{hint}: {error}"
            ) from error
        if callable(handler):
            signal.signal(signal.SIGTERM, handler)
        try:
            yield ray
        finally:
            ray.shutdown()


def _init(ray: Any, options: dict[str, Any]) -> None:
    if options["address"] == "local":
        # A cluster started only for this grid reports no usage statistics.
        os.environ.setdefault(USAGE, "0")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Ray Client connection timed out")  # an error follows
        ray.init(**options)


def _knock(address: str) -> None:
    # Ray itself takes minutes to report that an address is unreachable.
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        socket.create_connection((place.hostname or "", place.port or 0), timeout=KNOCK).close()
    except (OSError, ValueError) as error:
        raise ClusterError(f"nobody answers at address {address!r}: {error}") from error


@contextmanager
def _own_signals() -> Iterator[Any]:
    # Ray replaces the program's SIGTERM handler and does not restore it.
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield before
    finally:
        signal.signal(signal.SIGTERM, before)
