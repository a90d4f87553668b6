"""Spreads processes over the GPUs of a machine."""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from sumpool.system.locks import claim

#: Names the GPUs that a process may use; CUDA reads it when it is first used.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_seats = ExitStack()


def take_gpu(count: int, *, folder: Path | None = None) -> str | None:
    """Give this process one of the ``count`` first GPUs, the one that fewest others have taken.

    It holds a seat, a lock on a file, until it ends. CUDA must not have been used before in this
    process.

    Args:
        count: How many GPUs there are; fewer than two change nothing.
        folder: Where the seats are; None is a temporary folder of this user.

    Returns:
        The GPU that ``CUDA_VISIBLE_DEVICES`` now names alone; None if nothing changed.
    """
    if count < 2:
        return None
    named = os.environ.get(VISIBLE)
    gpus = named.split(",") if named else [str(index) for index in range(count)]
    folder = folder or Path(tempfile.gettempdir()) / f"sumpool-gpus-{os.getuid()}"
    for row, gpu in ((row, gpu) for row in itertools.count() for gpu in gpus[:count]):
        seat = ExitStack()
        if seat.enter_context(claim(folder / f"{gpu.replace('/', '_')}-{row}")):
            _seats.push(seat)
            os.environ[VISIBLE] = gpu
            return gpu
        seat.close()
    raise AssertionError("rows of seats have no end")
