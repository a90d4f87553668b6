"""Number of CPU cores available to the process."""

from __future__ import annotations

import os
import sys


def usable_cores() -> int:
    """Return the number of CPU cores this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
