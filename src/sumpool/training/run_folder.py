"""The folder of a run: options, machine, logs and results, in readable files."""

from __future__ import annotations

import csv
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from sumpool.report.run.folder import (
    BOARD,
    CHECKPOINTS,
    CONFIG,
    DIGESTS,
    LOCK,
    REPORT,
    RUN,
    WRITTEN,
)
from sumpool.system.digests import write_digests
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, atomic_path, write_atomic
from sumpool.system.locks import claim, held_by, is_claimed
from sumpool.system.rows import ROWS, recorded_versions
from sumpool.training.checkpoint import Checkpoints
from sumpool.training.config import TrainConfig, read_config, write_config
from sumpool.training.errors import RunError

#: Packages whose versions are recorded.
RECORDED = (
    *("sumpool", "torch", "torchvision", "timm", "lightning", "pytorch-metric-learning", "numpy"),
)


class RunFolder:
    """The folder of one run.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / CHECKPOINTS)

    @classmethod
    def create(cls, path: Path, config: TrainConfig, facts: Mapping[str, Any]) -> RunFolder:
        """Start a run in ``path``, which must not hold one.

        Raises:
            RunError: If ``path`` holds a run already, or cannot be written to.
        """
        folder = cls(path)
        folder.check_new()
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_config(config, path / CONFIG)
        except OSError as error:
            raise RunError(f"{path} cannot be written to: {error.strerror or error}") from error
        except StoreError as error:
            raise RunError(str(error)) from error
        folder.update(
            started=_now(),
            finished=None,
            command=[Path(sys.argv[0]).name, *sys.argv[1:]],
            versions=versions(),
            machine=machine(),
            **facts,
        )
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, TrainConfig]:
        """Open an existing run, and read its configuration.

        Raises:
            RunError: If ``path`` holds no run.
        """
        missing = [name for name in (RUN, CONFIG) if not (path / name).is_file()]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            raise RunError(f"{path} holds no run: {' and '.join(missing)} {verb} missing")
        return cls(path), read_config(path / CONFIG)

    def check_new(self) -> None:
        """Refuse a folder that holds a run, or files that a run would overwrite.

        Raises:
            RunError: If it does; names the file.
        """
        path = self.path
        if (path / RUN).exists():
            raise RunError(
                f"{path} holds a run already: continue it with --resume {shlex.quote(str(path))}, "
                "or choose another --out"
            )
        # With a lock, they belong to a study, which has rows, or to a run killed before it began.
        foreign = [name for name in WRITTEN if (path / name).exists()]
        if foreign and ((path / ROWS).exists() or not (path / LOCK).exists()):
            raise RunError(
                f"{path / foreign[0]} is not of a run and would be overwritten: choose another "
                "--out, or move it away"
            )

    def check_free(self) -> None:
        """Refuse a folder in which a process is training.

        Raises:
            RunError: If it is in use; names the process.
        """
        if is_claimed(self.path / LOCK):
            raise self._in_use()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock inside the ``with``, so that no other process trains in it.

        Raises:
            RunError: If another process holds it, which is named, or the folder is not writable.
        """
        with ExitStack() as held:
            try:
                mine = held.enter_context(claim(self.path / LOCK))
            except OSError as error:
                why = error.strerror or error
                raise RunError(f"{self.path} cannot be written to: {why}") from error
            if not mine:
                raise self._in_use()
            yield

    def drop_digests(self) -> None:
        """Remove the digests, before files change."""
        (self.path / DIGESTS).unlink(missing_ok=True)

    def _in_use(self) -> RunError:
        return RunError(
            f"{self.path} is in use: {held_by(self.path / LOCK)} trains in it; wait for its end, "
            "or choose another --out"
        )

    def facts(self) -> dict[str, Any]:
        """Read ``run.json``."""
        path = self.path / RUN
        try:
            facts: dict[str, Any] = load_json(path)
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error
        return facts

    def update(self, **facts: Any) -> None:
        """Add ``facts`` to ``run.json``."""
        path = self.path / RUN
        before = self.facts() if path.exists() else {}
        write_json(path, {**before, **facts})

    def finish(self, **facts: Any) -> None:
        """Record that the run is finished, and the digests of its files."""
        self.update(finished=_now(), **facts)
        write_digests(self.path, DIGESTS, skip=(BOARD, CHECKPOINTS, REPORT))


class CsvLog:
    """A CSV file that grows line by line; each line is flushed.

    Args:
        path: The file.
        columns: Its columns; a line may omit some, and may have no others.
        keep_until: In a resumed run, the last step whose line is kept: later ones will be logged
            again. None starts the file over.
        key: The column with the step.
    """

    def __init__(
        self, path: Path, columns: Sequence[str], keep_until: int | None, *, key: str = "step"
    ) -> None:
        self._columns = tuple(columns)
        kept: list[dict[str, str]] = []
        if keep_until is not None and path.is_file():
            with path.open(newline="", encoding="utf-8") as old:
                for row in csv.DictReader(old):
                    # A torn last line has no step, or too few fields.
                    step = row.get(key) or ""
                    if step.isdecimal() and int(step) <= keep_until and None not in row.values():
                        kept.append(row)
        with atomic_path(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(kept)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, self._columns)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a line."""
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON to ``path``, completely or not at all."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    try:
        write_atomic(path, text.encode())
    except StoreError as error:
        raise RunError(str(error)) from error


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in ``RECORDED``."""
    return recorded_versions(RECORDED)


def machine() -> dict[str, Any]:
    """Return the operating system, the number of cores, and the GPUs."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"system": platform.platform(), "cores": os.cpu_count(), "gpus": gpus}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
