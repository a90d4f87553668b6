"""What a study is: how it is run, and how its stored results are reported."""

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
    """Run a study into a folder."""

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
        """Compute the cells that are not stored yet and return the rows of all.

        Args:
            out_dir: Folder of the results.
            seeds: Number of seeds, 0 to ``seeds`` − 1; None is the default of the study.
            quick: A smoke test of a few seconds, with fewer seeds and steps: ignore the numbers.
            progress: Show progress bars on stderr.
            force: Discard stored results first.
            data: Folder of real images, for studies that train on some (:meth:`Study.options`).
            jobs: Cells that run in parallel; None is one per core, and one in the quick mode.
            weights: File of a pretrained backbone, for studies that start from one.

        Raises:
            ConfigError: If data or weights are not what the study takes.
        """
        ...


#: Held by the process that runs a study into a folder.
LOCK = ".lock"


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold ``folder`` inside the ``with``: no other process runs a study into it meanwhile.

    Raises:
        StoreError: If another process holds it, which is named.
    """
    with claim(folder / LOCK) as mine:
        if not mine:
            raise StoreError(
                f"{folder} is in use: {held_by(folder / LOCK)} runs a study in it; wait for its "
                "end, or choose another --out"
            )
        yield


#: Arguments of ``run`` that not every study has.
OPTIONS = ("data", "jobs", "weights")


@dataclass(frozen=True)
class Study:
    """A study. Its modules, and with them torch and matplotlib, are imported on first use."""

    summary: str  #: What it shows, in one line
    cost: str  #: How long it takes
    experiment: str  #: Module with its ``run``
    report: str  #: Module with its ``tables`` and ``section``

    @classmethod
    def in_folder(cls, package: str, summary: str, cost: str) -> Study:
        """The study of a package: ``experiment.py`` runs it, ``section.py`` reports it."""
        return cls(summary, cost, f"{package}.experiment", f"{package}.section")

    @property
    def run(self) -> RunStudy:
        """Runs the study."""
        return cast(RunStudy, import_module(self.experiment).run)

    def options(self) -> tuple[str, ...]:
        """The :data:`OPTIONS` that :attr:`run` takes."""
        taken = inspect.signature(self.run).parameters
        return tuple(name for name in OPTIONS if name in taken)

    def tables(self, rows: list[Row]) -> list[Table]:
        """The numbers of stored rows, averaged over seeds; draws nothing."""
        return cast("list[Table]", self._report().tables(rows))

    def section(self, folder: Path, rows: list[Row]) -> Section:
        """The section of a page on stored rows; figures read arrays from ``folder``."""
        return cast("Section", self._report().section(folder, rows))

    def _report(self) -> Any:
        return import_module(self.report)
