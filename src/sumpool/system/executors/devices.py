"""Distribution of processes over the GPUs of a machine."""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from sumpool.system.locks import claim

#: Environment variable with the GPUs a process may use; read when CUDA is initialized.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_seats = ExitStack()


def take_gpu(count: int, *, folder: Path | None = None) -> str | None:
    """Assign to this process the GPU with the fewest processes, of the first ``count``.

    The process holds a seat, a lock on a file, until it ends. CUDA must not have been initialized
    in it.

    Args:
        count: Number of GPUs; with fewer than two, nothing changes.
        folder: Folder of the seats; None is a temporary folder of this user.

    Returns:
        The only GPU in ``CUDA_VISIBLE_DEVICES`` from now on; None if nothing changed.
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
