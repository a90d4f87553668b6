"""Keeps Lightning from logging for every run what it runs on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

#: Its loggers: it uses the name of whichever part of it was imported last.
LOGGERS = ("lightning.fabric", "lightning.pytorch")


@contextmanager
def quiet_fabric() -> Iterator[None]:
    """Let only warnings of Lightning through inside the ``with``, in the whole process."""
    # Importing it sets the levels of its loggers: it must not happen later, inside the block.
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
