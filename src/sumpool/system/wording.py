"""Formatting of counts and lists in messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Format ``number`` with its noun in the singular or plural.

    >>> counted(1, "image"), counted(1200, "image"), counted(0, "class", "classes")
    ('1 image', '1,200 images', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """List the first ``most`` names, and count the others.

    >>> first_few(["a", "b"]), first_few("abcde")
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
