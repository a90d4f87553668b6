"""``sumpool demo``: train three poolings and compare them on a page."""

from __future__ import annotations

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_common_options, finished_cells, results_folder, verb_parser
from sumpool.studies.catalog import get_study
from sumpool.studies.shared.study import sole_writer

SUMMARY = "train and compare three poolings on generated images, in minutes"

DESCRIPTION = """\
Train a small network with average pooling (GAP), generalized sum pooling as published (GSP) and
GSP on learned keys, and compare how well they retrieve images of unseen classes.

The images are generated collages of one letter and three digits. The letter is the class; the
digits are background that all classes share. All runs start from one network, pretrained on letters
alone. Prints means and standard deviations over the seeds, and writes DIR/report.html, a
self-contained page with curves, the pixels that each pooling looks at, and links to the runs.

Takes about 4 minutes on two cores. Finished runs are kept: after an interrupt, the same command
resumes.

examples:
  sumpool demo
  sumpool demo --seeds 5 --out runs/demo-5
  sumpool demo --quick
"""

NOTES = (
    "A collage shows one letter and three digits in four tiles. The letter is the class, the "
    "digits are background that all classes share, and test letters do not occur in training. All "
    "runs start from one network that was trained on training letters alone. The methods differ "
    "only in the pooling: loss, learning rate, batches and steps are the same. Each run keeps the "
    "step with the best MAP@R on validation letters.",
)


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool demo [options]")
    add_common_options(
        parser, out="runs/demo, or runs/demo-quick with --quick", seeds="3, or 1 with --quick"
    )
    return parser


def run(options: Namespace) -> int:
    """Train, then print the comparison and the path of the page."""
    from sumpool.report.run.comparison import write_comparison_page
    from sumpool.studies.glyphs.experiment import METHODS, cell_folder
    from sumpool.studies.page import refuse_foreign_files, tables_of

    out = results_folder(options, "demo")
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
    return finished_cells(results_folder(options, "demo"))
