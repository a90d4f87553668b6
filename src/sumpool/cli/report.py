"""``sumpool report``: the page of a run, or of several side by side."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import HelpFormatter

SUMMARY = "write the page of a run, or one that compares several"

DESCRIPTION = """\
Write one self-contained HTML page from what run folders hold; nothing is computed again.

With one run: metrics, curves, what the model retrieves and where it looks. With several: their
metrics and curves side by side, runs that differ in nothing but the seed averaged.

examples:
  sumpool report runs/photos
  sumpool report runs/gap-0 runs/gap-1 runs/gsp-0 runs/gsp-1 --out gap-gsp.html
"""


def build_parser() -> ArgumentParser:
    """The parser of the verb."""
    parser = ArgumentParser(
        usage="sumpool report RUN [RUN ...] [--out FILE]",
        description=DESCRIPTION,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of runs")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default: report.html in the run, comparison.html for several)",
    )
    return parser


def run(options: Namespace) -> int:
    """Write the page and say where it is."""
    # Imported here: drawing needs matplotlib, which `--help` does not.
    from sumpool.report.comparison_page import group_runs, write_comparison_page
    from sumpool.report.run_page import write_run_page

    if len(options.runs) == 1:
        page = write_run_page(options.runs[0], options.out)
    else:
        page = write_comparison_page(
            group_runs(options.runs),
            options.out or Path("comparison.html"),
            "sumpool: runs compared",
        )
    print(f"page: {page}")
    return 0
