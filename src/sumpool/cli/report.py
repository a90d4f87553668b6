"""``sumpool report``: write the page of a run, of compared runs, of studies, or of a search."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_overwrite, verb_parser

SUMMARY = "write the page of a run, or compare several runs or studies"

DESCRIPTION = """\
Write a self-contained HTML page from stored results, without recomputing anything:

  one run            its metrics and curves, what the model retrieves and where it looks
  several runs       their metrics and curves, averaged over runs that differ only in the seed
  studies            their tables and figures
  a tuning search    its trials

examples:
  sumpool report runs/photos
  sumpool report runs/gap-0 runs/gap-1 runs/gsp-0 runs/gsp-1 --out gap-gsp.html
  sumpool report runs/collage runs/share --out studies.html
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool report RUN [RUN ...] [--out FILE]")
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="folders of runs or studies, or one folder of `sumpool tune`",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="output file (default: report.html in the folder; comparison.html for several runs, "
        "studies.html for several studies)",
    )
    add_overwrite(parser)
    return parser


def run(options: Namespace) -> int:
    """Write the page and print its path."""
    from sumpool.report.html_page import refuse_foreign_page
    from sumpool.report.run.comparison import write_comparison_page
    from sumpool.report.run.folder import REPORT
    from sumpool.report.run.groups import group_runs
    from sumpool.report.run.page import write_run_page
    from sumpool.studies.page import write_page
    from sumpool.system.files import StoreError
    from sumpool.system.rows import ROWS
    from sumpool.tune.store import DATABASE

    places = [folder.resolve() for folder in options.runs]
    for number, folder in enumerate(options.runs):
        if places[number] in places[:number]:
            raise StoreError(f"{folder} is named twice")
    studies = [folder for folder in options.runs if (folder / ROWS).is_file()]
    if studies:
        others = [str(folder) for folder in options.runs if folder not in studies]
        if others:
            raise StoreError(
                f"a page shows either runs or studies: {', '.join(others)} hold no study, unlike "
                f"{', '.join(map(str, studies))}"
            )
    several = "studies.html" if studies else "comparison.html"
    alone = len(options.runs) == 1
    out = options.out or (options.runs[0] / REPORT if alone else Path(several))
    refuse_foreign_page(out, overwrite=options.overwrite)
    if studies:
        write_page(studies, out, "sumpool: studies")
    elif alone and (options.runs[0] / DATABASE).is_file():
        from sumpool.tune.page import write_tune_page

        write_tune_page(options.runs[0], out)
    elif alone:
        write_run_page(options.runs[0], out)
    else:
        write_comparison_page(group_runs(options.runs), out, "sumpool: runs compared")
    print(f"page: {out}")
    return 0
