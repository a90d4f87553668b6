"""Threads for work that would block the event loop, with a limit on waiting calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BusyError(Exception):
    """Too many calls are waiting."""


class Worker:
    """Runs calls in threads, first come, first served.

    Args:
        name: Name prefix of the threads.
        threads: Number of concurrent calls; 1 for code that is not thread-safe.
        most: Maximum number of running and waiting calls; further ones are rejected.
    """

    def __init__(self, name: str, *, threads: int, most: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._pending = 0  # accessed only by the event loop

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` in a thread and return its result.

        Raises:
            BusyError: If too many calls are waiting.
        """
        if self._pending >= self._most:
            raise BusyError
        self._pending += 1
        try:
            return await asyncio.wrap_future(self._threads.submit(call, *args, **kwargs))
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Cancel waiting calls and wait for running ones."""
        self._threads.shutdown(wait=True, cancel_futures=True)
