"""Self-contained HTML pages from the templates of this package."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sumpool.system.files import refuse_overwriting, write_atomic


@dataclass(frozen=True)
class Picture:
    """A rendered figure.

    Attributes:
        png: The image in PNG format.
        alt: Alternative text.
    """

    png: bytes
    alt: str

    @property
    def wide(self) -> bool:
        """Whether the figure is a row of panels, too small to read at half the page width."""
        # Width and height follow the signature and the length and name of the first chunk.
        width, height = struct.unpack(">II", self.png[16:24])
        return bool(width > 1.8 * height)


@cache
def templates(package: str = "sumpool.report") -> Environment:
    """Return the template environment of a package; all inserted values are escaped."""
    found = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    found.filters["base64"] = lambda data: base64.b64encode(data).decode()
    return found


def render(template: str, **values: Any) -> str:
    """Render a template with ``values``, which are escaped."""
    return templates().get_template(template).render(values)


def render_part(name: str, *values: Any) -> str:
    """Render the macro ``name`` of ``parts.html`` with ``values``.

    Example:
        >>> render_part("image", b"abc", "a <dot>", "jpeg")
        '<img alt="a &lt;dot&gt;" src="data:image/jpeg;base64,YWJj">'
    """
    return str(getattr(templates().get_template("parts.html").module, name)(*values)).strip()


def write_page(out: Path, template: str, **values: Any) -> Path:
    """Write the rendered template to ``out`` atomically, and return ``out``."""
    write_atomic(out, render(template, **values).encode())
    return out


def refuse_foreign_page(out: Path, *, overwrite: bool = False) -> None:
    """Refuse to replace a file that is not a page of this package, unless ``overwrite``.

    Raises:
        StoreError: The message names the file.
    """
    try:
        with out.open("rb") as file:
            start = file.read(2000)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        start = b""
    # Pages of the first version are recognized by their title.
    if not (b'name="generator" content="sumpool"' in start or b"<title>sumpool" in start):
        refuse_overwriting([out], overwrite=overwrite)
