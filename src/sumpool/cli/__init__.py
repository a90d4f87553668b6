"""The command ``sumpool``: one file per verb, parsing only.

What ``--help`` does not need is imported inside functions: torch and matplotlib take seconds.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status, see :func:`sumpool.cli.entry.main`.

    Ctrl-C while modules are imported ends the process with status 130.
    """
    # Not by an exception: a module being imported could swallow it or raise another one.
    here = threading.current_thread() is threading.main_thread()
    caught = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if caught:
        signal.signal(signal.SIGINT, _leave)
    try:
        from sumpool.cli.entry import main as run
    finally:
        if caught:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(argv)


def _leave(number: int, frame: FrameType | None) -> None:
    print("\nsumpool: interrupted", file=sys.stderr, flush=True)
    os._exit(128 + number)
