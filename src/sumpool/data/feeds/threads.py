"""Threaded map with bounded lookahead."""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Compute ``map(work, items)`` in threads, at most ``ahead`` items in advance.

    Closing the generator, as Ctrl-C does, cancels items that have not started.
    """
    waiting: collections.deque[Future[Result]] = collections.deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sumpool")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
