"""HTML pages from the templates beside this module: files that open anywhere and load nothing."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sumpool.system.files import refuse_overwriting, write_atomic


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Attributes:
        png: The image.
        alt: What it shows, for those who do not see it.
    """

    png: bytes
    alt: str

    @property
    def wide(self) -> bool:
        """Whether it has panels in a row, too small to read in half the width of the page."""
        # Width and height stand in the header, after signature, length and name of the first chunk.
        width, height = struct.unpack(">II", self.png[16:24])
        return bool(width > 1.8 * height)


@cache
def templates(package: str = "sumpool.report") -> Environment:
    """The templates of a package; everything that is filled in is escaped."""
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
    """The template filled with ``values``; everything in them is escaped."""
    return templates().get_template(template).render(values)


def render_part(name: str, *values: Any) -> str:
    """What the macro ``name`` of ``parts.html`` makes of ``values``.

    Example:
        >>> render_part("image", b"abc", "a <dot>", "jpeg")
        '<img alt="a &lt;dot&gt;" src="data:image/jpeg;base64,YWJj">'
    """
    return str(getattr(templates().get_template("parts.html").module, name)(*values)).strip()


def write_page(out: Path, template: str, **values: Any) -> Path:
    """Write the filled template to ``out``, whole or not at all, and return ``out``."""
    write_atomic(out, render(template, **values).encode())
    return out


def refuse_foreign_page(out: Path, *, overwrite: bool = False) -> None:
    """Refuse to write over a file that is not a page of this package, unless asked to.

    Raises:
        StoreError: Naming it.
    """
    try:
        with out.open("rb") as file:
            start = file.read(2000)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        start = b""
    # Pages of the first version have only the title.
    if not (b'name="generator" content="sumpool"' in start or b"<title>sumpool" in start):
        refuse_overwriting([out], overwrite=overwrite)


def write_document(out: Path, title: str, body: str, style: str = "") -> Path:
    """Write a page with a title in plain text and a body in HTML; ``style`` adds CSS rules."""
    return write_page(out, "page.html", title=title, body=Markup(body), style=Markup(style.strip()))


def pictures_html(pictures: Sequence[Picture], kind: str = "") -> str:
    """Figures in a row, or one below the other where the page is narrow, of the class ``kind``."""
    return render_part("pictures", pictures, kind)


def paragraphs(notes: Sequence[str]) -> str:
    """Each note, plain text, as a paragraph."""
    return render_part("paragraphs", notes)
