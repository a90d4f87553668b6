"""Strict parsing of URL query strings: nothing is ignored or guessed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request

#: Left, top, right and bottom edge of an image region, in pixels.
Box = tuple[int, int, int, int]
#: Maximum number of characters of a wrong value that an error repeats.
_SHOWN = 40
# A number as Python prints it.
_NUMBER = r"-?([0-9]\.?|[0-9]?\.[0-9]{1,20})(e-[0-9]{1,3})?"


class Arguments:
    """The query arguments of a request.

    Args:
        request: The request.
        accepted: Accepted names, each at most once. Empty values, which forms send, count as
            absent.

    Raises:
        HTTPException: 400 for other or repeated names; methods raise it for invalid values.
    """

    def __init__(self, request: Request, accepted: Collection[str]) -> None:
        given = request.query_params.multi_items()
        names = [name for name, _ in given]
        for name in names:
            if name not in accepted:
                known = f"accepted are {', '.join(accepted)}" if accepted else "none is accepted"
                raise HTTPException(400, f"unknown argument {_shown(name)}: {known}")
            if names.count(name) > 1:
                raise HTTPException(400, f"{name} must be given once")
        self._values = {name: value for name, value in given if value.strip()}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return a value as text."""
        return self._values.get(name)

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Parse a whole number from ``low`` to ``high``."""
        text = self._values.get(name)
        if text is None:
            return default
        number = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else -1
        if not low <= number <= high:
            raise HTTPException(
                400, f"{name} must be a whole number from {low} to {high}, got {_shown(text)}"
            )
        return number

    def share(self, name: str, default: float) -> float:
        """Parse a similarity from -1 to 1."""
        text = self._values.get(name)
        if text is None:
            return default
        if not re.fullmatch(_NUMBER, text) or not -1 <= float(text) <= 1:
            raise HTTPException(400, f"{name} must be a number from -1 to 1, got {_shown(text)}")
        return float(text)

    def choice(self, name: str, accepted: Sequence[str], default: str) -> str:
        """Return one of the ``accepted`` values."""
        text = self._values.get(name, default)
        if text not in accepted:
            raise HTTPException(
                400, f"{name} must be one of {', '.join(accepted)}, got {_shown(text)}"
            )
        return text

    def box(self, name: str, width: int, height: int) -> Box | None:
        """Parse a region of an image of ``width`` × ``height`` pixels."""
        text = self._values.get(name)
        if text is None:
            return None
        match = re.fullmatch(r"(\d{1,7}),(\d{1,7}),(\d{1,7}),(\d{1,7})", text, re.ASCII)
        x0, y0, x1, y1 = map(int, match.groups()) if match else (0, 0, 0, 0)
        if not (x0 < x1 <= width and y0 < y1 <= height):
            raise HTTPException(
                400,
                f"{name} must be left,top,right,bottom in whole pixels inside the image of "
                f"{width} × {height}, got {_shown(text)}",
            )
        return x0, y0, x1, y1


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
