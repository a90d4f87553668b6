"""Location of unpacked archives by their files, and reading of their plain-text lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sumpool.data.base import DataError


@dataclass(frozen=True)
class ArchiveLayout:
    """File layout of an unpacked archive.

    Attributes:
        title: Name of the data set in messages.
        wanted: Required files, relative to the archive's folder; each a tuple of alternatives.
        inside: Possible paths of the archive's folder below the given root.
    """

    title: str
    wanted: tuple[tuple[str, ...], ...]
    inside: tuple[str, ...] = ()

    def find(self, root: Path) -> Path | None:
        """Return the archive's folder, ``root`` or one of ``inside``; None if not found."""
        return next((it for it in self._places(root) if not self._absent(it)), None)

    def locate(self, root: str | os.PathLike[str]) -> Path:
        """Like :meth:`find`, but raise an error that names the missing files."""
        root = existing(root)
        found = self.find(root)
        if found is not None:
            return found
        nearest = min(self._places(root), key=lambda place: len(self._absent(place)))
        lacking = ", ".join(self._absent(nearest))
        raise DataError(f"{root} holds no {self.title}: {nearest} lacks {lacking}")

    def path(self, home: Path, name: str) -> Path:
        """Return the path of the required file ``name`` or of its existing alternative."""
        places = next(it for it in self.wanted if name in it)
        return next((home / it for it in places if (home / it).is_file()), home / name)

    def _places(self, root: Path) -> list[Path]:
        return [root, *(root / name for name in self.inside)]

    def _absent(self, home: Path) -> list[str]:
        return [
            " or ".join(places)
            for places in self.wanted
            if not any((home / place).is_file() for place in places)
        ]


def existing(root: str | os.PathLike[str]) -> Path:
    """Convert ``root`` to a path; raise if it does not exist."""
    path = Path(root)
    if not path.exists():
        raise DataError(f"the data folder {path} does not exist")
    return path


def read_rows(path: Path, columns: Sequence[type], header: int = 0) -> list[list[str | int]]:
    """Read a UTF-8 table with whitespace-separated columns of type str or int.

    The last column may contain spaces. The first ``header`` lines are skipped.

    Raises:
        DataError: If a row has other columns; names the file and the line.
    """
    rows: list[list[str | int]] = []
    for number, line in enumerate(read_lines(path), 1):
        if number <= header or not line.strip():
            continue
        cells = line.split(maxsplit=len(columns) - 1)
        try:
            rows.append([kind(cell) for kind, cell in zip(columns, cells, strict=True)])
        except ValueError:
            names = " ".join(kind.__name__ for kind in columns)
            raise DataError(
                f"{path}, line {number}: wanted the columns {names}, got {line.strip()[:80]!r}"
            ) from None
    return rows


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
