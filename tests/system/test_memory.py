"""Memory that is freed serves the next batch."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from sumpool.system.memory import reuse_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16 * 2**20).sum()  # 64 MB each
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
given_back = faults()
reuse_freed_memory()
# The first few may not fit where one lay before, if small objects took the bytes around it.
faults()
print(given_back, faults())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_large_blocks_are_reused() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    given_back, reused = map(int, run.stdout.split())
    if given_back < 20 * 32:  # pages of 2 MB, the largest
        pytest.skip("torch has an allocator of its own here, which keeps large blocks by itself")
    assert reused <= given_back / 20  # one of the twenty
