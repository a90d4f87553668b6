"""``sumpool duplicates``: find duplicates and near-duplicates in an index."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_overwrite, verb_parser
from sumpool.training.config import ConfigError

SUMMARY = "find the duplicate and near-duplicate images of an index"

DESCRIPTION = """\
Find groups of duplicates: first files with the same content, then images whose similarity reaches
the threshold. Near-duplicates are chained: each is similar to at least one other of its group.

examples:
  sumpool duplicates photos.index
  sumpool duplicates photos.index --threshold .9 --html duplicates.html
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool duplicates INDEX [options]")
    parser.add_argument("index", type=Path, metavar="INDEX", help="folder of the index")
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.95,
        metavar="T",
        help="minimum similarity of near-duplicates, above 0 and at most 1 (default: 0.95)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the images")
    add_overwrite(parser)
    return parser


def run(options: Namespace) -> int:
    """Find duplicates, and print them or write a page."""
    if options.json and options.html is not None:
        raise ConfigError("--json and --html are mutually exclusive")
    if not 0 < options.threshold <= 1:
        raise ConfigError(f"--threshold must be above 0 and at most 1, got {options.threshold}")
    from sumpool.report.html_page import refuse_foreign_page
    from sumpool.search import Index
    from sumpool.search.answers import duplicates_json, duplicates_text
    from sumpool.search.page import write_duplicates

    if options.html is not None:
        refuse_foreign_page(options.html, overwrite=options.overwrite)
    index = Index.open(options.index)
    groups = index.duplicates(options.threshold, progress=True)
    if options.json:
        print(duplicates_json(index, groups))
    elif options.html is None:
        print(duplicates_text(index, groups, options.threshold))
    else:
        print(f"page: {write_duplicates(options.html, index, groups, options.threshold)}")
    return 0
