"""The examples of docs/export.md that need files, to be run where these are."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "export.md"


def example(word: str) -> str:
    """The Python block that has ``word`` in it."""
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (found,) = [block for block in blocks if word in block]
    return str(found)
