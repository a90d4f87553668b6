"""Check that decoded images and feature maps fit into memory."""

from __future__ import annotations

from sumpool.data.base import DataError


class CacheMemoryError(DataError, MemoryError):
    """Images or maps do not fit into memory; the message gives needed and available bytes."""


def check_capacity(
    needed: int, available: int | None, where: str, what: str = "decoded images"
) -> None:
    """Raise unless ``needed`` bytes are available; ``available=None`` (unknown) passes."""
    if available is not None and needed > available:
        raise CacheMemoryError(
            f"{what} need {_format_bytes(needed)} {where}, of which "
            f"{_format_bytes(available)} are available"
        )


def _format_bytes(count: int) -> str:
    return f"{count:,} bytes ({count / 2**30:.2f} GiB)"
