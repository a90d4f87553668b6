"""Results of a benchmark on disk: one row per finished cell, each in a file that never changes.

Rows are written atomically, and shared files are never appended to: any number of processes can
add rows concurrently, and any of them may be killed at any time.
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

logger = logging.getLogger(__name__)

ROWS, CELLS, CLAIMS, FAILURES = "rows", "cells", "claims", "failures"
#: Contents of a cell's folder: stdout and stderr, one line per start, and the run.
LOG, STARTS, RUN = "log.txt", "starts.jsonl", "run"


@dataclass(frozen=True)
class BenchFailure:
    """The last failure of a cell that is not finished.

    Attributes:
        id: Identity of the cell.
        attempt: Number of the attempt, starting at 1.
        error: Error message, one line or a few.
        log_tail: The last lines of the cell's log.
        when: Time at which it was recorded, ISO 8601.
    """

    id: str
    attempt: int
    error: str
    log_tail: str
    when: str


class BenchStore:
    """The folder of a benchmark, shared by any number of processes and machines.

    Args:
        folder: The folder; created on the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        # Rows never change, so each is read once.
        self._known: dict[str, BenchRow] = {}
        self._reported: set[Path] = set()

    def row(self, id: str) -> BenchRow | None:
        """Return the row of the cell ``id``; None if it is missing or, with a warning, damaged."""
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
        """Return all rows, ordered by protocol, data set, network, loss, method, fold and seed.

        Damaged files are skipped, each with a warning.
        """
        found = [self.row(path.stem) for path in self._row_files()]
        return sorted((row for row in found if row is not None), key=lambda row: row.order)

    def damaged(self) -> list[Path]:
        """Return the files in the folder of rows that are not rows, except those being written."""
        if not (self.folder / ROWS).is_dir():
            return []
        sound = {self._row_path(row.id) for row in self.rows()}
        return sorted(
            path
            for path in (self.folder / ROWS).iterdir()
            if path not in sound and not path.name.startswith(".")
        )

    def add(self, row: BenchRow) -> None:
        """Store a finished cell; on return it is on disk.

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
        """Return who claimed the cell ``id`` last: host, pid, since."""
        return holder(self._claim_path(id))

    def cell_folder(self, id: str) -> Path:
        """Return the folder of the cell ``id``, with its log, starts and run."""
        return self.folder / CELLS / id

    def starts(self, id: str) -> list[dict[str, Any]]:
        """Return when and where the cell ``id`` was started or resumed, oldest first."""
        path = self.cell_folder(id) / STARTS
        if not path.is_file():
            return []
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # torn by a crash, but still a start
                found.append({})
        return found

    def log_tail(self, id: str, lines: int = 30) -> str:
        """Return the last lines of the log of the cell ``id``."""
        path = self.cell_folder(id) / LOG
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 400 * lines))
            text = file.read().decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def failures(self) -> list[BenchFailure]:
        """Return the last failure of each unfinished cell that has failed."""
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
        """Record that an attempt at the cell ``id`` failed, replacing any earlier record."""
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
