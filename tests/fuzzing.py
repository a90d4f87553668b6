"""Bytes that are nearly right, and what a parser may do with them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from sumpool.cli.errors import describe


def damaged(sound: bytes) -> st.SearchStrategy[bytes]:
    """``sound`` with up to four pieces replaced, or any bytes."""
    piece = st.tuples(
        st.integers(0, len(sound)),
        st.integers(0, 16),
        st.binary(max_size=8) | st.sampled_from([b"\xff\xff\xff\x7f", b"9" * 20, b"nan", b"-1"]),
    )

    def replaced(pieces: list[tuple[int, int, bytes]]) -> bytes:
        content = sound
        for start, length, new in pieces:
            content = content[:start] + new + content[start + length :]
        return content

    return st.lists(piece, min_size=1, max_size=4).map(replaced) | st.binary(max_size=200)


def is_read_or_refused(read: Callable[[], object]) -> bool:
    """Whether ``read`` gives a value or an error of one line; a defect is raised."""
    try:
        read()
    except Exception as error:
        message = describe(error)
        if message is None:
            raise
        return "\n" not in message
    return True
