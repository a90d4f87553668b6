"""Parse the command line, run a verb, and turn its outcome into an exit status."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli import (
    bench,
    demo,
    duplicates,
    embed,
    evaluate,
    export,
    index,
    pretrain,
    report,
    search,
    serve,
    study,
    train,
    tune,
)
from sumpool.cli.errors import describe
from sumpool.cli.options import HelpFormatter, normalize_arguments
from sumpool.cli.parsing import Parser, usage_error
from sumpool.system.memory import reuse_freed_memory
from sumpool.system.signals import interrupt_status, show_stacks_on_request, term_interrupts
from sumpool.system.wording import on_one_line
from sumpool.training.config import flat_switches

DESCRIPTION = """\
Deep metric learning with generalized sum pooling.

examples:
  sumpool demo
  sumpool train --data photos/ --out runs/photos
  sumpool evaluate runs/photos --data more-photos/
  sumpool index --data photos/ --out photos.index --model runs/photos
  sumpool search photos.index photo.jpg

`sumpool VERB --help` describes a verb and its cost, with examples. Errors are printed on one line;
--debug shows the traceback.
"""

DEBUG = "--debug"

VERBS = {
    "demo": demo,
    "train": train,
    "tune": tune,
    "pretrain": pretrain,
    "evaluate": evaluate,
    "embed": embed,
    "export": export,
    "index": index,
    "search": search,
    "duplicates": duplicates,
    "serve": serve,
    "report": report,
    "study": study,
    "bench": bench,
}

#: Maximum number of characters of an error message.
LONGEST = 1000


@cache
def build_parser(*wanted: str) -> ArgumentParser:
    """Build the parser of the command.

    Args:
        wanted: Verbs to build in full, by default all; others are listed without their options,
            which take a good part of a second to build.
    """
    wanted = wanted or tuple(VERBS)
    parser = Parser(
        prog="sumpool",
        description=DESCRIPTION,
        formatter_class=HelpFormatter,
        version=metadata.version("sumpool"),
    )
    verbs = parser.add_subcommands(dest="verb", title="verbs", description=None, metavar="VERB")
    for name, verb in VERBS.items():
        own = verb.build_parser() if name in wanted else ArgumentParser()
        verbs.add_subcommand(name, own, help=verb.SUMMARY)
        if name in wanted and hasattr(verb, "add_actions"):  # only after its parent was added
            verb.add_actions(own)
    return parser


@term_interrupts()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments ``argv``, by default those of the process.

    Returns:
        The exit status: 0 for success, 1 for an expected error, 130 after an interrupt, 143
        after SIGTERM, 141 if the output is no longer read. Arguments that cannot be parsed end
        the process with status 2.
    """
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt as interrupt:  # before a verb started, or a second interrupt
        print("\nsumpool: interrupted", file=sys.stderr)
        return interrupt_status(interrupt)


class _OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        # A line break in the name of a file must not look like the end of the message.
        return on_one_line(super().formatMessage(record))


def _run(typed: Sequence[str]) -> int:
    show_stacks_on_request()
    reuse_freed_memory()
    end = typed.index("--") if "--" in typed else len(typed)
    debug = DEBUG in typed[:end]
    typed = [*(argument for argument in typed[:end] if argument != DEBUG), *typed[end:]]
    parser = build_parser(next((it for it in typed if it in VERBS), "none"))
    try:
        normalized = normalize_arguments(typed, flat_switches())
        trains = normalized[:1] in (["train"], ["tune"])
        given = train.apply_recipe(parser, normalized) if trains else []
        arguments = parser.parse_args(normalized)
        if trains:
            arguments[arguments.verb].given = given
    except Exception as error:
        _report(error, debug, usage_error(error, parser, typed))
        parser.exit(2)
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("sumpool: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("sumpool").setLevel(logging.INFO)
    options: Namespace = arguments[arguments.verb]
    verb = VERBS[arguments.verb]
    try:
        status: int = verb.run(options)
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()  # raises if the disk is full
        return status
    except KeyboardInterrupt as interrupt:
        kept = (
            verb.interrupt_message(options)
            if hasattr(verb, "interrupt_message")
            else "unwritten results are lost"
        )
        print(f"\nsumpool: interrupted; {kept}", file=sys.stderr)
        return interrupt_status(interrupt)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _unread():
            # Discard the rest, so that Python does not report it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        _report(error, debug, describe(error))
        return 1


def _unread() -> bool:
    """Whether the reader of the output has ended, such as ``head`` after its last line."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _report(error: Exception, debug: bool, line: str | None) -> None:
    """Print ``error`` as ``line``; re-raise it if it is a bug, or with --debug."""
    if debug or describe(error) is None:
        raise error
    if line is not None and len(line) > LONGEST:  # such as a file with one long name
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    print(f"sumpool: error: {line}", file=sys.stderr)
