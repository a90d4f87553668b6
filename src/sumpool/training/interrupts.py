"""Ending a run between two steps when the process receives a signal."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

import torch
from lightning.fabric import Fabric

from sumpool.system.signals import SIGNALS

#: Steps between checks across processes whether one has received a signal.
ASK_EVERY = 10


class Interrupts:
    """Context manager that records a signal instead of letting it end the process.

    The loop calls :meth:`asked` between steps. A second Ctrl-C ends the process at once. Does
    nothing outside the main thread, where signals cannot be caught.

    Attributes:
        name: Name of the received signal, such as "SIGTERM"; None before.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def asked(self, fabric: Fabric, step: int) -> bool:
        """Whether any process has received a signal; all agree, and check every few steps."""
        if fabric.world_size == 1:
            return self.name is not None
        if step % ASK_EVERY:
            return False
        received = torch.tensor(float(self.name is not None), device=fabric.device)
        return bool(fabric.all_reduce(received, reduce_op="sum"))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name
