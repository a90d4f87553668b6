"""Compact storage for the labels of many rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class LabelColumn:
    """One label per row, stored as an integer code; −1 for rows without a label.

    Example:
        >>> column = LabelColumn()
        >>> column.append(["wren", "robin", None, "wren"])
        >>> column.among(["wren", "owl"])
        array([ True, False, False,  True])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rows: NDArray[np.int32] = np.empty(0, np.int32)

    def append(self, labels: Sequence[str | None]) -> None:
        """Append rows."""
        column = pa.array(labels, pa.string()).dictionary_encode()
        names = column.dictionary.to_pylist()
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
        places = column.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        added = np.array([*numbers, -1], np.int32)[places]
        self._rows = np.concatenate([self._rows, added])

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Keep only the marked rows."""
        self._rows = self._rows[rows]

    def among(self, labels: Collection[str]) -> NDArray[np.bool_]:
        """Mark the rows that have one of ``labels``."""
        wanted = [self._numbers[name] for name in set(labels) if name in self._numbers]
        return np.isin(self._rows, wanted)
