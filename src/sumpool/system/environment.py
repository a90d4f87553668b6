"""Environment variables of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def preserved_environment(*names: str) -> Iterator[None]:
    """Restore the environment variables ``names`` at the end of the ``with``."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
