"""All of a benchmark in one text: Markdown, LaTeX, or a page that opens anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sumpool.bench.report.figure import METRIC, draw, improvements
from sumpool.bench.report.labels import caption_prefix, data_set_name
from sumpool.bench.report.scores import Gain, Score
from sumpool.report.html_page import Picture, render
from sumpool.report.section import render_png
from sumpool.report.tables import Table

TITLE = "sumpool: benchmark"


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
                f"{sets} in percent of the baselines, ours and the published ones"
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
    return render("bench.html", title=TITLE, tables=tables, figures=pictures)


def _plain(name: str) -> str:
    """A name as a part of the name of a file."""
    return "".join(sign if sign.isalnum() or sign in "_-." else "-" for sign in name)
