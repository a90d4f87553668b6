"""The results of a benchmark on disk: one row per finished cell, each a file that never changes.

Rows are written atomically, and nothing is appended to a file that others read: any number of
processes add rows at once, and any of them may be killed at any time.
"""

from __future__ import annotations

import json
import logging
import math
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sumpool.bench.store.rows import BenchRow, NotARowError, encode_row, read_row
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError, write_atomic
from sumpool.system.locks import claim, holder, is_claimed

__all__ = ["BenchFailure", "BenchRow", "BenchStore"]

logger = logging.getLogger(__name__)

ROWS, CELLS, CLAIMS, FAILURES = "rows", "cells", "claims", "failures"
#: In the folder of a cell: stdout and stderr of its process, one line per start, and the run.
LOG, STARTS, RUN = "log.txt", "starts.jsonl", "run"


@dataclass(frozen=True)
class BenchFailure:
    """The last failure of a cell that is not finished.

    Attributes:
        id: Identity of the cell.
        attempt: Which attempt it was, from 1 on.
        error: What went wrong, in a line or a few.
        log_tail: The last lines of the cell's log.
        when: When it was noted, ISO 8601.
    """

    id: str
    attempt: int
    error: str
    log_tail: str
    when: str


class BenchStore:
    """The folder of a benchmark, shared by any number of processes and machines.

    Args:
        folder: The folder; made when the first thing is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        # Rows never change, so one that was read need not be read again.
        self._known: dict[str, BenchRow] = {}
        self._reported: set[Path] = set()

    def row(self, id: str) -> BenchRow | None:
        """The row of the cell ``id``; None if there is none, or, with a warning, a damaged one."""
        if id not in self._known:
            path = self._row_path(id)
            if not path.is_file():
                return None
            row = self._read(path)
            if row is None:
                return None
            self._known[id] = row
        return self._known[id]

    def rows(self) -> list[BenchRow]:
        """All rows, ordered by protocol, data set, loss, method, fold and seed.

        Damaged files are left out, each with a warning.
        """
        found = [self.row(path.stem) for path in self._row_files()]
        return sorted((row for row in found if row is not None), key=lambda row: row.order)

    def damaged(self) -> list[Path]:
        """The files among the rows that are not rows; what is being written does not count."""
        if not (self.folder / ROWS).is_dir():
            return []
        sound = {self._row_path(row.id) for row in self.rows()}
        return sorted(
            path
            for path in (self.folder / ROWS).iterdir()
            if path not in sound and not path.name.startswith(".")
        )

    def add(self, row: BenchRow) -> None:
        """Store a finished cell; it is on the disk when this returns.

        Raises:
            StoreError: If the cell has a row already, or one of its numbers is not finite.
        """
        wrong = [name for name, value in row.metrics.items() if not math.isfinite(value)]
        if wrong:
            raise StoreError(f"the cell {row.id} gives no finite number for {', '.join(wrong)}")
        if self.row(row.id) is not None:
            raise StoreError(
                f"{self._row_path(row.id)} holds a row already: rows are never changed"
            )
        write_atomic(self._row_path(row.id), encode_row(row))

    def claim(self, id: str) -> AbstractContextManager[bool]:
        """Hold the cell ``id`` inside the ``with``; yields False if another process holds it."""
        return claim(self._claim_path(id))

    def is_claimed(self, id: str) -> bool:
        """Whether a process holds the cell ``id``."""
        return is_claimed(self._claim_path(id))

    def holder(self, id: str) -> dict[str, Any]:
        """Who took the cell ``id`` last: host, pid, since."""
        return holder(self._claim_path(id))

    def cell_folder(self, id: str) -> Path:
        """The folder of the cell ``id``: its log, its starts and its run."""
        return self.folder / CELLS / id

    def starts(self, id: str) -> list[dict[str, Any]]:
        """When and where the cell ``id`` was begun or resumed, the first one first."""
        path = self.cell_folder(id) / STARTS
        if not path.is_file():
            return []
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # torn by the end of a machine: a start all the same
                found.append({})
        return found

    def log_tail(self, id: str, lines: int = 30) -> str:
        """The last lines of the log of the cell ``id``."""
        path = self.cell_folder(id) / LOG
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 400 * lines))
            text = file.read().decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def failures(self) -> list[BenchFailure]:
        """The last failure of each cell that has failed and is not finished."""
        found = []
        for path in sorted((self.folder / FAILURES).glob("*.json")):
            if self.row(path.stem) is not None:
                continue
            try:
                found.append(BenchFailure(**load_json(path)))
            except (OSError, ValueError, TypeError) as error:
                logger.warning("%s is not a failure's note: %s", path, error)
        return found

    def note_failure(self, id: str, attempt: int, error: str, log_tail: str) -> BenchFailure:
        """Note that an attempt at the cell ``id`` failed, in place of an earlier note."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        noted = BenchFailure(id, attempt, error, log_tail, now)
        text = json.dumps(asdict(noted), indent=1, ensure_ascii=False) + "\n"
        write_atomic(self.folder / FAILURES / f"{id}.json", text.encode())
        return noted

    def _row_path(self, id: str) -> Path:
        return self.folder / ROWS / f"{id}.parquet"

    def _claim_path(self, id: str) -> Path:
        return self.folder / CLAIMS / id

    def _row_files(self) -> list[Path]:
        return sorted(
            path for path in (self.folder / ROWS).glob("*.parquet") if not path.name.startswith(".")
        )

    def _read(self, path: Path) -> BenchRow | None:
        try:
            return read_row(path)
        except NotARowError as error:
            if path not in self._reported:
                self._reported.add(path)
                logger.warning("%s is not a row and is left out: %s", path, error)
            return None
