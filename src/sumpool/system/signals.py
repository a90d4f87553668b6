"""Handling of INT and TERM when a whole process group receives them.

Ctrl-C in a terminal, ``timeout`` and ``systemctl stop`` signal every process of a command. The main
process decides what happens; it ends the others, or they end with it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

#: Sent by Ctrl-C, and by clusters and `kill`.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def shielded_children(*signals: signal.Signals) -> Iterator[None]:
    """Block ``signals`` in processes started inside the ``with``, from their first moment.

    Signals to this process are delivered on exit.
    """
    # Otherwise it is started with the first process, and unblocks INT and TERM in doing so.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def obey_parent_alone() -> None:
    """Make this process ignore INT, and TERM unless its parent sent it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if hasattr(signal, "sigwaitinfo"):  # not on macOS
        threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        pass
    os._exit(0)


@contextmanager
def term_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on the first TERM inside the ``with``; ignore TERM during cleanup.

    Python drops exceptions raised in a destructor. A KeyboardInterrupt of either signal that is
    lost in this way is raised again a moment later.

    Does nothing outside the main thread, where signals cannot be caught.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            hook(unraisable)
            return
        signal.signal(signal.SIGTERM, interrupt)
        number = interrupt_status(unraisable.exc_value) - 128
        again = threading.Timer(0.01, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    before, hook = signal.signal(signal.SIGTERM, interrupt), sys.unraisablehook
    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def show_stacks_on_request() -> None:
    """Make USR1 write the stack of every thread to stderr, without ending the process."""
    faulthandler.register(signal.SIGUSR1, file=2)  # follows later redirections of stderr


def interrupt_status(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status that a shell expects: 143 after TERM, 130 after Ctrl-C."""
    name = interrupt.args[0] if interrupt.args else None
    return 128 + signal.Signals[name or "SIGINT"]
