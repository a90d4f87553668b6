"""NVIDIA's Multi-Process Service (MPS), for runs that share a GPU.

Without it the kernels of several processes take turns on a GPU; with it they run concurrently.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from sumpool.system.environment import preserved_environment

#: Program that starts, queries and stops the service.
CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
#: Where CUDA looks for the service if ``CUDA_MPS_PIPE_DIRECTORY`` is not set.
DEFAULT_PIPES = Path("/tmp/nvidia-mps")
#: Seconds the service has to start, answer or stop.
PATIENCE = 20.0


@dataclass(frozen=True)
class MpsState:
    """Whether processes started now share their GPU through the service.

    Attributes:
        state: "started" here, "found" running, or "absent".
        why: The reason, for a log.
    """

    state: Literal["started", "found", "absent"]
    why: str

    @property
    def serving(self) -> bool:
        """Whether the service is running."""
        return self.state != "absent"


@contextmanager
def mps_server() -> Iterator[MpsState]:
    """Run the Multi-Process Service inside the ``with``, where possible.

    A running service is used as it is. Otherwise one is started with its pipes in a temporary
    folder, which child processes find in ``os.environ``, and stopped afterwards. Without a GPU,
    without the program, or if the service does not start, the yielded state is "absent".
    """
    found = _without_starting()
    if found is not None:
        yield found
        return
    # A short path under /tmp: names of sockets are limited to 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="sumpool-mps-", dir="/tmp"))
    try:
        with preserved_environment(PIPES, LOGS):
            os.environ.update({PIPES: str(folder), LOGS: str(folder)})
            trouble = _start(folder)
            if trouble is None:
                try:
                    yield MpsState("started", f"started in {folder}")
                finally:
                    if _ask("quit") is not None:
                        _kill(folder)
        if trouble is not None:  # the environment is restored: no process should look for it
            yield MpsState("absent", f"it could not be started: {trouble}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _without_starting() -> MpsState | None:
    """Return the state if the service cannot or need not be started, else None."""
    if not torch.cuda.is_available():
        return MpsState("absent", "there is no CUDA device")
    if shutil.which(CONTROL) is None:
        return MpsState("absent", f"{CONTROL} is not installed")
    there = serving_folder()
    return MpsState("found", f"it is running already, in {there}") if there else None


def serving_folder() -> Path | None:
    """Return the folder of the running service that processes started now would use, if any."""
    folder = Path(os.environ.get(PIPES) or DEFAULT_PIPES)
    # The remains of a killed service do not answer.
    serves = (folder / "control").exists() and _ask("get_server_list") is None
    return folder if serves else None


def _start(folder: Path) -> str | None:
    """Start the service; return an error message, or None."""
    trouble = _run([CONTROL, "-d"])
    if trouble is not None:
        return trouble
    end = time.monotonic() + PATIENCE
    while not (folder / "control").exists():
        if time.monotonic() > end:
            return f"there is no {folder / 'control'} after {PATIENCE:.0f} s"
        time.sleep(0.05)
    return None


def _ask(question: str) -> str | None:
    """Send a command to the service named in the environment; return an error message, or None."""
    return _run([CONTROL], question + "\n")


def _run(command: list[str], typed: str = "") -> str | None:
    try:
        ended = subprocess.run(
            command, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{shutil.which(command[0])} has not ended in {PATIENCE:.0f} s"
    except OSError as error:
        return str(error)
    if ended.returncode == 0:
        return None
    said = (ended.stderr or ended.stdout).strip().splitlines()
    return said[-1] if said else f"exit code {ended.returncode}"


def _kill(folder: Path) -> None:
    # For a service that does not answer; its pid file is missing if it has ended by itself.
    with suppress(OSError, ValueError):
        os.kill(int((folder / f"{CONTROL}.pid").read_text()), signal.SIGKILL)
