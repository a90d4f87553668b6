"""Valid values of metrics: any others mean that a file is damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Prefixes of metrics that are shares of 1; in rows of benchmarks, the split precedes them.
SHARES = ("precision_at_", "recall_at_", "r_precision", "mean_average_precision_at_r")
#: Metrics that count queries.
COUNTS = ("queries", "queries_without_match")
#: Tolerance, because means of many shares are rounded.
_ROUNDING = 1e-6


def check_metrics(metrics: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first metric which is not a number or out of range.

    Example:
        >>> check_metrics({"precision_at_1": 0.5, "test.queries": 12})
        >>> check_metrics({"test.precision_at_1": 1.5})
        Traceback (most recent call last):
        ...
        ValueError: test.precision_at_1 is 1.5, not a share between 0 and 1
    """
    for name, value in metrics.items():
        kind = name.rpartition(".")[2]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is {value!r}, not a number")
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, not a finite number")
        if is_share(kind) and not -_ROUNDING <= value <= 1 + _ROUNDING:
            raise ValueError(f"{name} is {value}, not a share between 0 and 1")
        if kind in COUNTS and not (value >= 0 and value == int(value)):
            raise ValueError(f"{name} is {value}, not a count")


def is_share(name: str) -> bool:
    """Whether the metric ``name`` is a share of 1."""
    return name.startswith(SHARES)
