"""From the command line to a verb, and from its end to an exit status."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli import demo, study
from sumpool.cli.options import HelpFormatter

DESCRIPTION = """\
Deep metric learning with generalized sum pooling.

  sumpool demo           a first look: two small studies and a page with their figures
  sumpool study NAME     run one study; its results are kept and resumed

`sumpool VERB --help` says what a verb does, what it costs and shows an example.
"""

VERBS = {"demo": demo, "study": study}


def build_parser() -> ArgumentParser:
    """The parser of the command with all its verbs."""
    parser = ArgumentParser(
        prog="sumpool",
        description=DESCRIPTION,
        formatter_class=HelpFormatter,
        version=metadata.version("sumpool"),
    )
    verbs = parser.add_subcommands(dest="verb", title="verbs", metavar="VERB")
    for name, verb in VERBS.items():
        verbs.add_subcommand(name, verb.build_parser(), help=verb.SUMMARY)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments ``argv``, by default those of the process.

    Returns:
        The exit status: 0 if all went well, 1 if results could not be used as asked, 130 after an
        interrupt. Arguments that cannot be parsed end the process with status 2.
    """
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="sumpool: %(message)s")
    options: Namespace = arguments[arguments.verb]
    out: Path = VERBS[arguments.verb].folder(options)
    try:
        VERBS[arguments.verb].run(options)
    except KeyboardInterrupt:
        print(f"\nsumpool: interrupted; {_kept(out)}", file=sys.stderr)
        return 130
    except Exception as error:
        # Imported here: the store needs numpy, which `--help` does not.
        from sumpool.report.store import StoreError

        if not isinstance(error, StoreError):
            raise
        print(f"sumpool: error: {error}", file=sys.stderr)
        return 1
    return 0


def _kept(out: Path) -> str:
    from sumpool.report.store import ROWS, read_rows

    cells = sum(len(read_rows(path.parent)) for path in out.rglob(ROWS))
    if not cells:
        return f"no cell was finished, nothing is kept in {out}"
    noun = "cell is" if cells == 1 else "cells are"
    return f"{cells} finished {noun} kept in {out}; the same command goes on from there"
