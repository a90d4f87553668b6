"""``sumpool demo``: train three poolings and compare them on a page."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_common_options, finished_cells, verb_parser
from sumpool.studies.catalog import get_study
from sumpool.studies.shared.study import sole_writer

SUMMARY = "a first look: average and generalized sum pooling, trained and compared"

DESCRIPTION = """\
Train a small network with average pooling (GAP), with generalized sum pooling as published (GSP),
and with GSP on learned keys, and compare how well images of unseen classes find each other.

The images are collages, drawn on the spot: one letter and three digits. The class is the letter;
the digits are background that all classes share. The network learns letters alone first, and all
runs start from there. Prints mean and standard deviation over the seeds, and writes one page with
curves, the pixels each pooling looks at and links to every run, DIR/report.html, that opens in any
browser without a network. Takes about 4 minutes on two cores.
Finished runs are kept: after an interrupt, the same command continues from there.

examples:
  sumpool demo
  sumpool demo --seeds 5 --out runs/demo-5
  sumpool demo --quick
"""

NOTES = (
    "A collage shows one letter and three digits in four tiles. Letters are the classes, digits "
    "are background that all classes share, and the letters of the test set were never seen in "
    "training. All runs start from one network that was trained on training letters alone. The "
    "methods differ in the pooling: loss, learning rate, batches and steps are the same, and of "
    "each run the step with the best MAP@R on validation letters is kept.",
)


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION)
    add_common_options(
        parser, out="runs/demo, with --quick runs/demo-quick", seeds="3, with --quick 1"
    )
    return parser


def folder(options: Namespace) -> Path:
    """Folder of the results."""
    if options.out is not None:
        return Path(options.out)
    return Path("runs") / ("demo-quick" if options.quick else "demo")


def run(options: Namespace) -> int:
    """Train, then print the comparison and the path of the page."""
    # Imported here: drawing needs matplotlib and training needs torch, which `--help` does not.
    from sumpool.report.run.comparison import write_comparison_page
    from sumpool.studies.glyphs.experiment import METHODS, cell_folder
    from sumpool.studies.page import refuse_foreign_files, tables_of

    out = folder(options)
    refuse_foreign_files(out, overwrite=options.overwrite)
    with sole_writer(out):
        rows = get_study("glyphs").run(
            out, seeds=options.seeds, quick=options.quick, force=options.force
        )
    print("\n\n".join(it.text() for it in tables_of(out)))
    groups = {
        method: [
            cell_folder(out, method, row.cell["seed"])
            for row in rows
            if row.cell["method"] == method
        ]
        for method in METHODS
    }
    title = "sumpool: average and generalized sum pooling"
    page = write_comparison_page(groups, out / "report.html", title, NOTES)
    print(f"\npage: {page}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps."""
    return finished_cells(folder(options))
