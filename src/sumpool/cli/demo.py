"""``sumpool demo``: two small studies, one after the other, on one page."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import HelpFormatter, add_common_options
from sumpool.studies import get_study

SUMMARY = "a first look: which pixels are pooled, and what is learned through a pooling"

#: The studies of the demo, in the order of the page.
PARTS = ("toy", "tokens")

DESCRIPTION = """\
Compare average pooling with generalized sum pooling on two problems small enough for any machine:

  toy      which pixels of a 10×10 map get weight
  tokens   what 16 classes with a shared background look like after learning through each pooling

Prints a table for each, and writes one page with all figures, DIR/report.html, that opens in any
browser without a network. Takes 1 to 3 minutes on two cores. Finished cells are kept: the same
command after an interrupt goes on from there.

examples:
  sumpool demo
  sumpool demo --seeds 5 --out runs/demo-5
  sumpool demo --quick
"""


def build_parser() -> ArgumentParser:
    """The parser of the verb."""
    parser = ArgumentParser(description=DESCRIPTION, formatter_class=HelpFormatter)
    add_common_options(
        parser, out="runs/demo, with --quick runs/demo-quick", seeds="3, with --quick 1"
    )
    return parser


def folder(options: Namespace) -> Path:
    """Where the results go."""
    if options.out is not None:
        return Path(options.out)
    return Path("runs") / ("demo-quick" if options.quick else "demo")


def run(options: Namespace) -> None:
    """Run the studies, print their tables and say where the page is."""
    # Imported here: drawing needs matplotlib, which `--help` does not.
    from sumpool.report.page import write_page
    from sumpool.report.sections import table

    out = folder(options)
    seeds = options.seeds or (1 if options.quick else 3)
    for name in PARTS:
        execute = get_study(name).load()
        execute(out / name, seeds=seeds, quick=options.quick, force=options.force)
    for name in PARTS:
        print(table(out / name).text(), end="\n\n")
    page = write_page([out / name for name in PARTS], out / "report.html", "sumpool: a first look")
    print(f"page: {page}")
