"""Locate the data of a grid from names of known data sets, paths, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sumpool.data import DATASETS, DataError, detect_format
from sumpool.training.config import ConfigError

#: Generic formats: a data set in one of them is named after its path.
_ANY = ("folder", "csv", "parquet")


@dataclass(frozen=True)
class DataSource:
    """A data set and its location.

    Attributes:
        name: Name shown in tables.
        format: A key of ``sumpool.data.DATASETS``.
        path: Folder, CSV or Parquet file; None for generated data.
    """

    name: str
    format: str
    path: Path | None


def find_data(text: str, root: Path) -> DataSource:
    """Return the data set that ``text`` refers to.

    Args:
        text: Name of a known data set, which is searched under ``root``; ``NAME=PATH``; or a path.
        root: Folder of the known data sets, each in the folder that its archive unpacks to.

    Raises:
        ConfigError: If it is neither a known name nor a path.
        DataError: If the data is missing; names the folder.

    Example:
        >>> find_data("glyphs", Path("data"))
        DataSource(name='glyphs', format='glyphs', path=None)
    """
    if text == "glyphs":
        return DataSource("glyphs", "glyphs", None)
    name, equals, place = text.partition("=")
    if equals:
        if not name or not place:
            raise ConfigError(f"data must be NAME, NAME=PATH or a path, got {text!r}")
        path = Path(place).absolute()
        return DataSource(name, name if name in DATASETS else detect_format(path), path)
    if text in DATASETS:
        return _under(text, root)
    path = Path(text).absolute()
    if not path.exists():
        known = ", ".join(DATASETS)
        raise ConfigError(f"data must be one of {known}, NAME=PATH or a path, got {text!r}")
    format = detect_format(path)
    own = path.name if path.is_dir() else path.stem
    return DataSource(own if format in _ANY else format, format, path)


def _under(name: str, root: Path) -> DataSource:
    layout: Any = getattr(DATASETS[name], "layout", None)
    if layout is None:
        raise ConfigError(f"data {name} has no folder of its own: say {name}=PATH")
    try:
        own = root / name
        home = layout.find(root) or (layout.find(own) if own.is_dir() else None)
        home = home or layout.locate(root)
    except DataError as error:
        raise DataError(f"{error}; give --root, or --data {name}=PATH") from error
    return DataSource(name, name, home.absolute())
