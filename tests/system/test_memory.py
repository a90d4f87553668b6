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
    torch.ones(16 * 2**20).sum()  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
given_back = faults()
reuse_freed_memory()
faults()
print(given_back, faults())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_large_blocks_are_reused() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    given_back, reused = map(int, run.stdout.split())
    assert reused < 100
    assert reused <= given_back
