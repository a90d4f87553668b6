"""Checks that decoded images fit into memory."""

from __future__ import annotations

from sumpool.data.base import DataError


class CacheMemoryError(DataError, MemoryError):
    """Decoded images do not fit; the message says how many bytes are needed and available."""


def check_room(needed: int, available: int | None, where: str) -> None:
    """Raise unless ``needed`` bytes are available; None is unknown and passes."""
    if available is not None and needed > available:
        raise CacheMemoryError(
            f"decoded images need {_format_bytes(needed)} {where}, of which "
            f"{_format_bytes(available)} are available"
        )


def _format_bytes(count: int) -> str:
    return f"{count:,} bytes ({count / 2**30:.2f} GiB)"
