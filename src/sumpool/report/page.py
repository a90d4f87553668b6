"""One self-contained HTML page from folders of results: opens anywhere, loads nothing."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from sumpool.report.sections import Section, section

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --line: #d5dae1;
  --dim: #59636e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14171b; --line: #3a424c;
  --dim: #9aa5b1; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
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
figure img { display: block; width: 100%; height: auto; }
.provenance { color: var(--dim); font-size: .8rem; overflow-wrap: anywhere; }
""".strip()


def write_page(folders: Sequence[Path], out: Path, title: str) -> Path:
    """Write the sections of the studies in ``folders``, in that order, to the page ``out``.

    Images are inside the page; nothing outside of it is referred to.

    Returns:
        ``out``.
    """
    body = "\n".join(_section_html(section(folder)) for folder in folders)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return out


def _section_html(part: Section) -> str:
    pictures = "\n".join(
        f'<figure><img alt="{html.escape(picture.alt)}" '
        f'src="data:image/png;base64,{base64.b64encode(picture.png).decode()}"></figure>'
        for picture in part.pictures
    )
    notes = "\n".join(f"<p>{html.escape(note)}</p>" for note in part.notes)
    return (
        f"<section>\n<h2>{html.escape(part.title)}</h2>\n<p>{html.escape(part.question)}</p>\n"
        f'<p class="caption">{html.escape(part.table.caption)}</p>\n'
        f'<div class="scroll" tabindex="0">\n{part.table.html()}\n</div>\n'
        f'<div class="pictures">\n{pictures}\n</div>\n{notes}\n'
        f'<p class="provenance">{html.escape(part.provenance)}</p>\n</section>'
    )
