"""The shell of every page: one HTML file that opens anywhere and loads nothing."""

from __future__ import annotations

import base64
import html
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --line: #d5dae1;
  --dim: #59636e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14171b; --line: #3a424c;
  --dim: #9aa5b1; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; line-height: 1.25; margin: 2.2rem 0 .4rem; }
p { margin: .6rem 0; }
.scroll { overflow-x: auto; margin: .3rem 0 1rem; }
table { border-collapse: separate; border-spacing: 0; width: 100%;
  font-variant-numeric: tabular-nums; }
.caption { color: var(--dim); font-size: .85rem; margin: 1rem 0 0; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
thead th { white-space: normal; min-width: 5.5rem; vertical-align: bottom; font-size: .85rem; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
tbody th { font-weight: 600; }
.pictures { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; justify-content: center; }
figure { flex: 1 1 20rem; max-width: 36rem; margin: 0; padding: .5rem; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; }
figure.wide { flex-basis: 100%; max-width: 100%; }
figure img { display: block; width: 100%; height: auto; }
.provenance { color: var(--dim); font-size: .8rem; overflow-wrap: anywhere; }
""".strip()


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
        """Whether it has panels side by side, too small to read in half the width of the page."""
        # Width and height stand in the header, after signature, length and name of the first chunk.
        width, height = struct.unpack(">II", self.png[16:24])
        return bool(width > 1.8 * height)


def document(title: str, body: str, style: str = "") -> str:
    """The page with this title and body.

    Args:
        title: Title and first heading, as plain text.
        body: What comes below the heading, as HTML.
        style: Rules in addition to ``STYLE``.
    """
    rules = f"{STYLE}\n{style.strip()}".strip()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{rules}\n</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def write_document(out: Path, title: str, body: str, style: str = "") -> Path:
    """Write the page with this title and body to ``out``, whole or not at all.

    Args:
        out: The file; folders on the way to it are made.
        title: As in :func:`document`, and so are the next two.
        body: What comes below the heading.
        style: Rules in addition to ``STYLE``.

    Returns:
        ``out``.
    """
    text = document(title, body, style)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, out)
    return out


def image_html(data: bytes, alt: str, kind: str = "png") -> str:
    """An image inside the page.

    Example:
        >>> image_html(b"abc", "a <dot>", "jpeg")
        '<img alt="a &lt;dot&gt;" src="data:image/jpeg;base64,YWJj">'
    """
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img alt="{html.escape(alt)}" src="{source}">'


def pictures_html(pictures: Sequence[Picture], kind: str = "") -> str:
    """Figures side by side, one below the other where the page is narrow.

    Args:
        pictures: The figures.
        kind: A class for the style to know them by.
    """
    drawn = "\n".join(
        f"<figure{_classes(kind, 'wide' if picture.wide else '')}>"
        f"{image_html(picture.png, picture.alt)}</figure>"
        for picture in pictures
    )
    return f'<div class="pictures">\n{drawn}\n</div>'


def _classes(*names: str) -> str:
    given = " ".join(name for name in names if name)
    return f' class="{given}"' if given else ""


def paragraphs(notes: Sequence[str]) -> str:
    """Each note, plain text, as a paragraph."""
    return "\n".join(f"<p>{html.escape(note)}</p>" for note in notes)
