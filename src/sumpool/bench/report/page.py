"""A benchmark's report as Markdown, as LaTeX, or as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from sumpool.bench.report.figure import METRIC, draw, improvements
from sumpool.bench.report.labels import caption_prefix, data_set_name
from sumpool.bench.report.scores import Gain, Score
from sumpool.report.html_page import Picture, render
from sumpool.report.plots import picture
from sumpool.report.tables import Table

TITLE = "sumpool: benchmark"


def bench_pictures(scores: Sequence[Score], gains: Sequence[Gain]) -> dict[str, Picture]:
    """Draw the relative improvements of each protocol, network and dimension that has any.

    Returns:
        The figures by file name without suffix, such as ``fair-bn_inception-128``.
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
            figure = draw(found, protocol=protocol, backbone=backbone, dimension=dimension)
            pictures[f"{protocol}-{_plain(backbone)}-{dimension}"] = picture(figure, alt)
    return pictures


def markdown_text(tables: Sequence[Table]) -> str:
    """Return the tables in Markdown, each under its caption."""
    return "\n\n".join(f"{table.caption}\n\n{table.markdown()}" for table in tables) + "\n"


def latex_text(tables: Sequence[Table]) -> str:
    r"""Return the tables in LaTeX, for a document with ``\usepackage{booktabs}``."""
    head = "% needs \\usepackage{booktabs}"
    return "\n\n".join([head, *(table.latex() for table in tables)]) + "\n"


def page_text(tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """Return one HTML page with the tables and the embedded figures."""
    return render("bench.html", title=TITLE, tables=tables, figures=pictures)


def _plain(name: str) -> str:
    """Replace characters that are unsuitable for file names."""
    return "".join(sign if sign.isalnum() or sign in "_-." else "-" for sign in name)
