"""Evenly spaced selections, for figures."""

from __future__ import annotations

import numpy as np


def evenly_spaced(count: int, most: int) -> list[int]:
    """Return up to ``most`` evenly spaced indices of ``count`` items, from the first to the last.

    Example:
        >>> evenly_spaced(20, 3), evenly_spaced(2, 3)
        ([0, 10, 19], [0, 1])
    """
    return [int(it) for it in np.linspace(0, count - 1, min(most, count)).round()]
