"""Definition of a study: how to run it and how to report its stored results."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from sumpool.system.files import StoreError
from sumpool.system.locks import claim, held_by

if TYPE_CHECKING:
    from pathlib import Path

    from sumpool.report.section import Section
    from sumpool.report.tables import Table
    from sumpool.system.rows import Row


class RunStudy(Protocol):
    """Signature of a study's ``run`` function."""

    def __call__(
        self,
        out_dir: Path,
        *,
        seeds: int | None = None,
        quick: bool = False,
        progress: bool = True,
        force: bool = False,
        data: Path | None = ...,
        jobs: int | None = ...,
        weights: Path | None = ...,
    ) -> list[Row]:
        """Compute the missing cells and return the rows of all cells.

        Args:
            out_dir: Folder of the results.
            seeds: Number of seeds, 0 to ``seeds`` − 1; None uses the default of the study.
            quick: Run a smoke test of a few seconds with fewer seeds and steps; ignore the numbers.
            progress: Show progress bars on stderr.
            force: Discard stored results first.
            data: Folder of real images, for studies that accept one (:meth:`Study.options`).
            jobs: Cells to run in parallel; None means one per core, or one in quick mode.
            weights: File of a pretrained backbone, for studies that start from one.

        Raises:
            ConfigError: If the study does not accept the data or the weights.
        """
        ...


#: Lock file held by the process that runs a study in a folder.
LOCK = ".lock"


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock ``folder`` inside the ``with``, so that no other process runs a study in it.

    Raises:
        StoreError: If another process holds the lock; the message names it.
    """
    with claim(folder / LOCK) as mine:
        if not mine:
            raise StoreError(
                f"{folder} is in use: {held_by(folder / LOCK)} runs a study in it; wait for its "
                "end, or choose another --out"
            )
        yield


#: Arguments of ``run`` that only some studies accept.
OPTIONS = ("data", "jobs", "weights")


@dataclass(frozen=True)
class Study:
    """A study. Its modules, and with them torch and matplotlib, are imported on first use."""

    summary: str  #: One-line description
    cost: str  #: Expected runs and duration
    experiment: str  #: Module with its ``run``
    report: str  #: Module with its ``tables`` and ``section``

    @classmethod
    def in_folder(cls, package: str, summary: str, cost: str) -> Study:
        """Create the study of a package: ``experiment.py`` runs it, ``section.py`` reports it."""
        return cls(summary, cost, f"{package}.experiment", f"{package}.section")

    @property
    def run(self) -> RunStudy:
        """Function that runs the study."""
        return cast(RunStudy, import_module(self.experiment).run)

    def options(self) -> tuple[str, ...]:
        """Return the :data:`OPTIONS` that :attr:`run` accepts."""
        taken = inspect.signature(self.run).parameters
        return tuple(name for name in OPTIONS if name in taken)

    def tables(self, rows: list[Row]) -> list[Table]:
        """Return the tables of stored rows, averaged over seeds, without drawing figures."""
        return cast("list[Table]", self._report().tables(rows))

    def section(self, folder: Path, rows: list[Row]) -> Section:
        """Return the section for stored rows; figures read arrays from ``folder``."""
        return cast("Section", self._report().section(folder, rows))

    def _report(self) -> Any:
        return import_module(self.report)
