"""Number of threads that torch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, where more would cost more than they save.

    That is so for small tensors, and for processes that would compete for the same cores: threads
    that wait for each other slow all of them down.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
