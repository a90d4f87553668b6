"""Checkpoints: written atomically, checked by digest, the last two kept."""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sumpool.system.files import StoreError, atomic_path
from sumpool.training.errors import RunError

logger = logging.getLogger(__name__)

#: First line of a checkpoint: this, then the digest of the rest and its length.
MAGIC = "sumpool-checkpoint-1"
KEPT = 2
_NAME = re.compile(r"step-(\d+)\.ckpt")


class Checkpoints:
    """The checkpoints of a run, in one folder.

    A process that dies while writing leaves the previous checkpoint untouched. Damage is detected
    by the digest, and the previous checkpoint is used. Reading a checkpoint executes no code from
    it: it holds tensors, numbers, strings and containers of these.

    Args:
        folder: The folder, created with the first checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def start(self) -> Path:
        """Folder of the model that the run started from, if any."""
        return self.folder / "start"

    def remove(self) -> None:
        """Remove the folder, once the run need not be resumed."""
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    def files(self) -> list[Path]:
        """Return the checkpoint files, ordered by step."""
        if not self.folder.is_dir():
            return []
        named = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(named, key=_step)

    def describe_newest(self) -> str:
        """Describe the newest checkpoint, for messages."""
        files = self.files()
        return str(files[-1]) if files else "no checkpoint"

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Report errors inside the ``with`` as a checkpoint that does not fit the run."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            lacks = "it lacks " if isinstance(error, KeyError) else ""
            raise RunError(
                f"the checkpoint in {self.folder} does not fit this run: {lacks}{error}"
            ) from error

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of ``step`` and remove all but the last two.

        Raises:
            RunError: If it cannot be written (a full disk, say). Earlier checkpoints are kept.
        """
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        payload = buffer.getbuffer()
        head = f"{MAGIC} {hashlib.sha256(payload).hexdigest()} {len(payload)}\n".encode("ascii")
        path = self.folder / f"step-{step:09d}.ckpt"
        try:
            with atomic_path(path) as aside, aside.open("wb") as file:
                file.write(head)
                file.write(payload)
        except StoreError as error:
            before = self.files()
            kept = f"that of step {_step(before[-1])} is intact" if before else "there is none yet"
            raise RunError(f"checkpoint {error}; {kept}") from error
        for old in self.files()[:-KEPT]:
            old.unlink()
        return path

    def load(self) -> dict[str, Any] | None:
        """Load the newest intact checkpoint; None if there are no checkpoints.

        A damaged file is reported in a warning, and the previous one is used.

        Raises:
            RunError: If there are files but none is intact.
        """
        files = self.files()
        for path in reversed(files):
            try:
                return _read(path)
            except RunError as error:
                logger.warning("%s; the checkpoint before it is used", error)
        if files:
            raise RunError(f"no sound checkpoint in {self.folder}: start the run again")
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    head, _, payload = content.partition(b"\n")
    fields = head.decode("ascii", errors="replace").split(" ")
    if len(fields) != 3 or fields[0] != MAGIC:
        raise RunError(f"{path} is no checkpoint of this version, or its beginning is damaged")
    if str(len(payload)) != fields[2]:
        raise RunError(f"{path} is cut short: {len(payload)} of {fields[2]} bytes")
    if hashlib.sha256(payload).hexdigest() != fields[1]:
        raise RunError(f"{path} is damaged: its digest does not match")
    try:
        # weights_only: torch's restricted unpickler, which runs no code from the file.
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        TypeError,
        KeyError,
        EOFError,
    ) as error:
        raise RunError(f"{path} holds something other than a checkpoint: {error}") from error
    if not isinstance(state, dict):
        raise RunError(f"{path} holds a {type(state).__name__}, not a checkpoint")
    return state


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is not named like a checkpoint")
    return int(match[1])


def random_state(device: torch.device) -> dict[str, Tensor | None]:
    """Return the states of torch's generators on the CPU and on ``device``, for a checkpoint."""
    return {
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Restore the states returned by :func:`random_state`."""
    torch.set_rng_state(state["random"])
    if state["random_cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["random_cuda"], device)
