"""Work for processes of the tests; imports little, so that they start quickly."""

from __future__ import annotations

import os
import signal
import time


def dies_at_one(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def sleeps(number: int) -> int:
    if number:
        time.sleep(600)
    return number


class UnsendableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raises_unsendable(number: int) -> int:
    raise UnsendableError(number, 2)
