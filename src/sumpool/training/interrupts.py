"""Ends a run between two steps when the process receives a signal."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

import torch
from lightning.fabric import Fabric

from sumpool.system.signals import SIGNALS

#: Steps between two questions to all processes whether one was asked to stop.
ASK_EVERY = 10


class Interrupts:
    """While entered, a first signal is remembered instead of ending the process.

    The loop asks :attr:`name` between steps. A second Ctrl-C ends the process at once. Outside the
    main thread signals cannot be caught, and nothing is changed.

    Attributes:
        name: Name of the signal that was received, such as "SIGTERM"; None if none was.
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
        """Whether a process has received a signal; all agree, and ask every few steps."""
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
