"""Studies: each one file, one command, one folder of results.

Importing this package is cheap; a study and with it torch is imported when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from sumpool.report.store import Row


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
    ) -> list[Row]:
        """Compute the cells that are not stored yet and return all of them.

        Args:
            out_dir: Folder of the results.
            seeds: How many seeds, 0 to ``seeds`` − 1; None takes the default of the study.
            quick: Take seconds: fewer seeds and steps. Shows that all works, not what comes out.
            progress: Show progress bars on stderr.
            force: Discard stored results first.
        """
        ...


@dataclass(frozen=True)
class Study:
    """What the command line knows of a study before loading it.

    Attributes:
        summary: What it shows, in one line.
        cost: What it takes.
        module: Where its ``run`` is.
    """

    summary: str
    cost: str
    module: str

    def load(self) -> RunStudy:
        """Import the study and return its ``run``."""
        return cast(RunStudy, import_module(self.module).run)


#: The studies by name.
STUDIES: Mapping[str, Study] = {
    "glyphs": Study(
        "train GAP and GSP on letters among digits: retrieval of letters never seen",
        "about 4 minutes on two cores",
        "sumpool.studies.glyphs",
    ),
    "toy": Study(
        "pooling weights on a 10×10 map of red and blue on green (hard, smooth, average)",
        "a second",
        "sumpool.studies.toy",
    ),
    "tokens": Study(
        "learn 2-D tokens through average and sum pooling: MAP@R and hulls of the classes",
        "about 2 minutes on one core",
        "sumpool.studies.tokens",
    ),
    "margins": Study(
        "the token study at four margins of its loss: what the outcome depends on",
        "about 5 minutes on one core",
        "sumpool.studies.margins",
    ),
}


def get_study(name: str) -> Study:
    """The study called ``name``.

    Raises:
        ValueError: If there is none; the message lists the choices.
    """
    if name not in STUDIES:
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {name!r}")
    return STUDIES[name]


__all__ = ["STUDIES", "RunStudy", "Study", "get_study"]
