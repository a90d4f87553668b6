"""How much main memory is left, and what becomes of memory that is freed."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

#: Parameters of glibc's ``mallopt`` by their numbers, and the largest values of each.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = (-1, 2**31 - 1), (-3, 2**30)


def available_memory() -> int | None:
    """Bytes of main memory this process can still take; None where it is unknown.

    On Linux, what the machine has to give and what the limit of the process's control group
    leaves, whichever is less.
    """
    if sys.platform == "linux":
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        values = dict(line.split(":", 1) for line in lines)
        free = 1024 * int(values["MemAvailable"].split()[0])
        group = _group_memory()
        return free if group is None else min(free, group)
    if sys.platform == "win32":
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that the memory limit of this process's control group leaves; None without one."""
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="utf-8").split("::", 1)[1].strip()
        folder = root / group.lstrip("/")
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, IndexError, ValueError):  # no such group, or its limit reads "max"
        return None
    # Files that were read count as used, but give way.
    reclaimable = int(dict(line.split() for line in lines)["inactive_file"])
    return max(0, limit - used + reclaimable)


def reuse_freed_memory() -> None:
    """Keep large blocks of memory that are freed for the next ones, where the C library is glibc.

    It gives blocks of 32 MB and more, such as the maps of a batch, back to the system at once, and
    the system clears every page of the next one: more than half of the time of a network on a CPU
    (docs/results/network-cpu). Torch for ARM has an allocator of its own that keeps them anyway.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        for parameter, value in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(parameter, value)
