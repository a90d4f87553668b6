"""Available main memory, and reuse of freed memory."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

#: Parameter numbers of glibc's ``mallopt``, each with its largest value.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = (-1, 2**31 - 1), (-3, 2**30)


def available_memory() -> int | None:
    """Return the bytes of main memory this process can still allocate; None if unknown.

    On Linux, the smaller of the machine's available memory and what is left under the limit of the
    process's control group; on macOS, all physical memory.
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
    """Bytes left under the memory limit of this process's control group; None without a limit."""
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="utf-8").split("::", 1)[1].strip()
        folder = root / group.lstrip("/")
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, IndexError, ValueError):  # no such group, or its limit reads "max"
        return None
    # Cached files count as used, but are dropped when memory is needed.
    reclaimable = int(dict(line.split() for line in lines)["inactive_file"])
    return max(0, limit - used + reclaimable)


def reuse_freed_memory() -> None:
    """Keep large freed blocks for later allocations, where the C library is glibc.

    By default, glibc returns blocks of 32 MB and more, such as the maps of a batch, to the system
    at once, and the system clears every page of the next one: more than half of a network's time on
    a CPU (docs/results/network-cpu). PyTorch for ARM keeps them anyway, in its own allocator.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        for parameter, value in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(parameter, value)
