"""The progress bar of a grid."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Self

from tqdm import tqdm

from sumpool.bench.cells import BenchCell
from sumpool.bench.estimate import format_duration, total_seconds
from sumpool.bench.store.store import BenchStore
from sumpool.bench.summary import Summary

#: Seconds between updates.
EVERY = 5.0


class GridBar:
    """Progress bar with the finished, running and failed cells, and the estimated time left."""

    def __init__(
        self, store: BenchStore, cells: Sequence[BenchCell], summary: Summary, *, shown: bool
    ) -> None:
        self._store, self._cells, self._summary = store, cells, summary
        self._again = self._put_off = 0
        self._ended = threading.Event()
        self._bar = tqdm(
            total=len(cells),
            initial=len(summary.elsewhere),
            desc="cells",
            unit="cell",
            disable=not shown,
            dynamic_ncols=True,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]",
        )
        # Outside a terminal, every update would print a new line.
        live = shown and sys.stderr.isatty()
        self._thread = threading.Thread(target=self._watch, daemon=True) if live else None

    def __enter__(self) -> Self:
        self.show()
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._bar.close()

    def show(self, *, again: int = 0, put_off: int = 0) -> None:
        """Update the bar, with the number of cells to retry and of those that run elsewhere."""
        self._again, self._put_off = again, put_off
        if not self._bar.disable:
            # The process that has just finished a cell is about to start the next one.
            self._draw(coming=1)

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            self._draw()

    def _draw(self, coming: int = 0) -> None:
        summary = self._summary
        finished = {cell.id for cell in (*summary.done, *summary.elsewhere)}
        failed = {cell.id for cell, _ in summary.failed}
        left = [cell for cell in self._cells if cell.id not in finished | failed]
        running = sum(self._store.is_claimed(cell.id) for cell in left)
        running = min(len(left), running + coming)
        others = {"failed": len(failed), "to retry": self._again, "elsewhere": self._put_off}
        words = [f"{running} running", *(f"{it} {what}" for what, it in others.items() if it)]
        seconds, unknown = total_seconds(self._store.rows(), left)
        if left and not unknown:
            words.append(f"about {format_duration(seconds / max(1, running))} left")
        self._bar.n = len(finished)
        self._bar.set_postfix_str(", ".join(words))
