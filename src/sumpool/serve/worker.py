"""Work that would block the event loop, in threads of its own and with a limit on what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BusyError(Exception):
    """Too much work is waiting already."""


class Worker:
    """Runs calls in threads, first come, first served.

    Args:
        name: Name of its threads.
        threads: Calls that run at once; 1 for what is not safe to run twice.
        most: Calls that may run or wait; further ones are refused.
    """

    def __init__(self, name: str, *, threads: int, most: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = most
        self._pending = 0  # only ever touched by the event loop

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``call`` returns.

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
        """Drop what waits, and wait for what runs."""
        self._threads.shutdown(wait=True, cancel_futures=True)
