"""Suppression of Lightning's log messages about the hardware of each run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

#: Lightning logs under the name of whichever of its packages was imported last.
LOGGERS = ("lightning.fabric", "lightning.pytorch")


@contextmanager
def quiet_fabric() -> Iterator[None]:
    """Hide Lightning's messages below warnings inside the ``with``, in the whole process."""
    # The import sets the levels of the loggers: it must not happen later, inside the block.
    import lightning.fabric  # noqa: F401

    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [it.level for it in loggers]
    for it in loggers:
        it.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for it, level in zip(loggers, levels, strict=True):
            it.setLevel(level)
