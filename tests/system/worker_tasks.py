"""Work for processes of the tests; imports little, so that they start quickly."""

from __future__ import annotations

import os
import signal
import threading
import time


def dies_at_one(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def sleeps(number: int) -> int:
    if number:
        time.sleep(600)
    return number


def breaks_its_process(item: int) -> int:
    """Fails at 0, and from then on in the same process."""
    if item == 0:
        os.environ["BROKEN"] = "yes"
    if "BROKEN" in os.environ:
        raise ValueError("broken")
    return item


def dies_after_its_answer(number: int) -> int:
    if number == 0:
        threading.Timer(0.2, os._exit, [9]).start()
    return number**2


def is_interrupted(number: int) -> int:
    raise KeyboardInterrupt


def holds_open(pipe: str) -> None:
    """Say so in ``pipe``, and hold it open for as long as this process lives, or too long."""
    with open(pipe, "w", encoding="utf-8") as file:
        file.write("begun\n")
        file.flush()
        time.sleep(60)
        file.write("too long\n")


class UnsendableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raises_unsendable(number: int) -> int:
    raise UnsendableError(number, 2)
