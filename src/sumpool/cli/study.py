"""``sumpool study NAME``: run one study and write its page."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import HelpFormatter, add_common_options, finished_cells
from sumpool.studies import STUDIES, get_study

SUMMARY = "run one study; finished cells are kept and not computed again"

DESCRIPTION = """\
Run one study, print its table and write a page with its figures.

studies:
{studies}

Every cell (a method with a seed) is stored in DIR/rows.jsonl as soon as it is finished. The same
command after an interrupt, or with more seeds, computes only what is missing. The page,
DIR/report.html, is drawn from the stored results alone.

examples:
  sumpool study toy
  sumpool study tokens --quick
  sumpool study tokens --seeds 10 --out runs/ten-seeds
"""


def build_parser() -> ArgumentParser:
    """The parser of the verb."""
    listed = "\n".join(
        f"  {name:<9} {study.summary};\n            takes {study.cost}"
        for name, study in STUDIES.items()
    )
    parser = ArgumentParser(
        description=DESCRIPTION.format(studies=listed), formatter_class=HelpFormatter
    )
    parser.add_argument(
        "name", metavar="NAME", choices=list(STUDIES), help=f"which study: {', '.join(STUDIES)}"
    )
    add_common_options(
        parser,
        out="runs/NAME, with --quick runs/NAME-quick",
        seeds="5, glyphs and margins 3, with --quick 1",
    )
    return parser


def folder(options: Namespace) -> Path:
    """Where the results go."""
    if options.out is not None:
        return Path(options.out)
    return Path("runs") / (f"{options.name}-quick" if options.quick else options.name)


def run(options: Namespace) -> int:
    """Run the study, print its table and say where its page is."""
    # Imported here: drawing needs matplotlib, which `--help` does not.
    from sumpool.report.page import write_page
    from sumpool.report.sections import table

    out = folder(options)
    execute = get_study(options.name).load()
    execute(out, seeds=options.seeds, quick=options.quick, force=options.force)
    print(table(out).text())
    page = write_page([out], out / "report.html", f"sumpool: study {options.name}")
    print(f"\npage: {page}")
    return 0


def kept(options: Namespace) -> str:
    """What an interrupt left, in words."""
    return finished_cells(folder(options))
