"""What the verbs share: the layout of help, and the options that all of them take."""

from __future__ import annotations

from argparse import Action, ArgumentTypeError, RawDescriptionHelpFormatter
from pathlib import Path

from jsonargparse import ArgumentParser, DefaultHelpFormatter


class HelpFormatter(DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions, and shows help texts as they are written.

    The texts name their defaults in words, where the parser would print types and "null".
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100, max_help_position=16)  # type: ignore[no-untyped-call]

    def _get_help_string(self, action: Action) -> str:
        return action.help or ""


def count(value: str | int) -> int:
    """A whole number of at least 1, as text or, when the parser checks it again, as a number."""
    text = str(value)
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def add_common_options(parser: ArgumentParser, out: str, seeds: str) -> None:
    """Add --quick, --out, --seeds and --force.

    Args:
        parser: The parser of a verb.
        out: The default of --out in words.
        seeds: The default of --seeds in words.
    """
    parser.add_argument(
        "--quick",
        action="store_true",
        help="take seconds: few steps and seeds; shows that all works, not what comes out",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder of the results (default: {out})"
    )
    parser.add_argument(
        "--seeds", type=count, metavar="N", help=f"run the seeds 0 to N-1 (default: {seeds})"
    )
    parser.add_argument(
        "--force", action="store_true", help="first discard the results that DIR holds already"
    )
