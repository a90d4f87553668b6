"""All of a benchmark in one text: Markdown, LaTeX, or a page that opens anywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import partial

from sumpool.bench.report.figure import METRIC, draw, improvements
from sumpool.bench.report.labels import caption_prefix, data_set_name
from sumpool.bench.report.scores import Gain, Score
from sumpool.report.html_page import Picture, document, pictures_html
from sumpool.report.section import render_png
from sumpool.report.tables import Table

TITLE = "sumpool: benchmark"
#: Names over several columns stand in their middle; published rows stand back behind ours.
STYLE = """
thead th[colspan] { text-align: center; }
tbody tr:has(+ .under) > * { border-bottom: 0; padding-bottom: 0; }
tr.under > * { color: var(--dim); font-size: .85rem; font-weight: 400; padding-top: 0; }
""".strip()


def bench_pictures(scores: Sequence[Score], gains: Sequence[Gain]) -> dict[str, Picture]:
    """A figure of relative improvement for each protocol, network and dimension that has any.

    Returns:
        The figures by a name for a file, such as ``fair-bn_inception-128``.
    """
    settings = dict.fromkeys(
        (it.protocol, it.backbone, it.dimension) for it in scores if it.metric == METRIC
    )
    pictures = {}
    for protocol, backbone, dimension in sorted(settings):
        found = improvements(scores, gains, protocol, backbone, dimension)
        if found:
            sets = ", ".join(dict.fromkeys(data_set_name(it.data_set) for it in found))
            alt = (
                f"{caption_prefix(protocol, backbone)}, {dimension} dimensions: gains in MAP@R on "
                f"{sets} in per cent of the baselines, ours and the published ones"
            )
            write = partial(draw, found, protocol=protocol, backbone=backbone, dimension=dimension)
            pictures[f"{protocol}-{_plain(backbone)}-{dimension}"] = render_png(write, alt)
    return pictures


def markdown_text(tables: Sequence[Table]) -> str:
    """The tables in Markdown, each under its caption."""
    return "\n\n".join(f"{table.caption}\n\n{table.markdown()}" for table in tables) + "\n"


def latex_text(tables: Sequence[Table]) -> str:
    r"""The tables in LaTeX; a document that takes them needs ``\usepackage{booktabs}``."""
    head = "% needs \\usepackage{booktabs}"
    return "\n\n".join([head, *(table.latex() for table in tables)]) + "\n"


def page_text(tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """One HTML page with the tables and the figures inside it."""
    numbers = "\n".join(
        f'<p class="caption">{html.escape(table.caption)}</p>\n'
        f'<div class="scroll" tabindex="0">\n{table.html()}\n</div>'
        for table in tables
    )
    figures = f"\n{pictures_html(pictures)}" if pictures else ""
    return document(TITLE, f"{numbers}{figures}", STYLE)


def _plain(name: str) -> str:
    """A name as a part of the name of a file."""
    return "".join(sign if sign.isalnum() or sign in "_-." else "-" for sign in name)
