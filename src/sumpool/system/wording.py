"""Formatting of counts, lists and names in messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Control characters, separators of lines, and bytes of names that are not UTF-8.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


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


def on_one_line(name: str) -> str:
    r"""Escape control characters, such as line breaks in the name of a file.

    >>> print(on_one_line("a\nb.jpg"))
    a\nb.jpg
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), name)
