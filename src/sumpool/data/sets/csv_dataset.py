"""CSV files that list images with their classes."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import NamedTuple, Unpack

from sumpool.data.base import DataError, Transforms
from sumpool.data.sets.archive import existing
from sumpool.data.sets.files import ImageFiles, missing_files
from sumpool.data.splits import check_split
from sumpool.system.wording import first_few

_REQUIRED = ("path", "label")
_COLUMNS = (*_REQUIRED, "split")


class Row(NamedTuple):
    """A row of the CSV file and its line number."""

    line: int
    path: str
    label: str
    split: str


class ImageTable(ImageFiles):
    """Images listed in a CSV file with the columns ``path``, ``label`` and, optionally, ``split``.

    The file is UTF-8; its first line names the columns, in any order. Paths are absolute or
    relative to the folder of the file, and stay inside it. Labels are text; sorted (by value if all
    are digits), they become the class names. A class has the same label in all splits.

    Args:
        root: The file, or a folder with exactly one CSV file.
        split: "all", or a value of the column ``split``.
        allow_outside: Whether to accept images outside the folder of the file.
        transforms: See :class:`~sumpool.data.base.Transforms`.

    Raises:
        DataError: If columns are wrong, a cell is empty, or an image does not exist, lies outside
            the folder or is listed twice in a split; names the file and the line.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        *,
        allow_outside: bool = False,
        **transforms: Unpack[Transforms],
    ) -> None:
        path = table_file(root)
        rows = read_table(path)
        check_split(split, _splits(rows))
        if not allow_outside:
            _check_inside(path, rows)
        if missing := missing_files(path.parent, [row.path for row in rows]):
            names = [str(path.parent / rows[it].path) for it in missing]
            line = rows[missing[0]].line
            raise DataError(f"{path}, line {line}: there is no file {first_few(names, 1)}")
        names = _sorted_names({row.label for row in rows})
        label = {name: it for it, name in enumerate(names)}
        chosen = [row for row in rows if split in ("all", row.split)]
        super().__init__(
            path.parent,
            [row.path for row in chosen],
            [label[row.label] for row in chosen],
            names,
            **transforms,
        )


def table_file(root: str | os.PathLike[str]) -> Path:
    """Return ``root`` if it is a file, else the only CSV file in it."""
    path = existing(root)
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.csv"))
    if len(found) != 1:
        raise DataError(f"{path} must hold one CSV file, found {len(found)}: name the one to use")
    return found[0]


def read_header(path: Path) -> list[str]:
    """Return the column names of a CSV file; none if it is empty or not text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _undecodable(path: Path) -> int:
    """Return the number of the first line that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def read_table(path: Path) -> list[Row]:
    """Read and check the rows of a CSV file; see :class:`ImageTable` for the format."""
    rows: list[Row] = []
    lines: dict[tuple[str, str], int] = {}
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(path, header)
            for cells in filter(None, reader):
                line = reader.line_num
                row = _row(path, line, header, cells)
                before = lines.setdefault((row.path, row.split), line)
                if before != line:
                    raise DataError(f"{path}, line {line}: {row.path} is in line {before} already")
                rows.append(row)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {_undecodable(path)}: not UTF-8, save it as such") from error
    except csv.Error as error:
        raise DataError(f"{path}, after line {line}: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not rows:
        raise DataError(f"{path} has no rows")
    return rows


def find_splits(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the sorted values of the column ``split``, if it exists."""
    return _splits(read_table(table_file(root)))


def _splits(rows: list[Row]) -> tuple[str, ...]:
    return tuple(sorted({row.split for row in rows} - {""}))


def _check_inside(path: Path, rows: list[Row]) -> None:
    folder = os.path.abspath(path.parent)
    for row in rows:
        # Links are not resolved: as in an image folder, they may point anywhere.
        if not os.path.abspath(os.path.join(folder, row.path)).startswith(os.path.join(folder, "")):
            raise DataError(
                f"{path}, line {row.line}: {row.path} lies outside {path.parent}; accept such "
                "files with --allow-outside"
            )


def _check_header(path: Path, header: list[str]) -> None:
    wanted = "a first line with the columns path, label and, optionally, split"
    if missing := [name for name in _REQUIRED if name not in header]:
        raise DataError(f"{path} lacks the column {missing[0]}: wanted {wanted}, got {header}")
    if unknown := [name for name in header if name not in _COLUMNS]:
        raise DataError(f"{path} has the column {unknown[0]!r}: wanted {wanted}")
    if len(set(header)) != len(header):
        raise DataError(f"{path} has a column twice: wanted {wanted}, got {header}")


def _row(path: Path, line: int, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        raise DataError(
            f"{path}, line {line}: wanted {len(header)} cells ({', '.join(header)}), "
            f"got {len(cells)}"
        )
    cell = dict(zip(header, cells, strict=True))
    # Names of files keep their blanks.
    cell |= {name: it.strip() for name, it in cell.items() if name != "path"}
    if empty := [name for name in header if not cell[name].strip()]:
        raise DataError(f"{path}, line {line}: the cell {empty[0]} is empty")
    if cell.get("split") == "all":
        raise DataError(f"{path}, line {line}: no split may be called 'all', which means every row")
    return Row(line, cell["path"], cell["label"], cell.get("split", ""))


def _sorted_names(names: set[str]) -> list[str]:
    if all(name.isascii() and name.isdigit() for name in names):
        # By value, but without int(), which accepts at most 4,300 digits.
        digits = {name: name.lstrip("0") for name in names}
        return sorted(names, key=lambda name: (len(digits[name]), digits[name], name))
    return sorted(names)
