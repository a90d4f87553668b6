"""Working memory does not grow with the number of pairs; metrics need no image libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, torch
from pathlib import Path
from sumpool.evaluation import retrieval_metrics

torch.set_num_threads(1)
items, memory = (int(x) for x in sys.argv[1:])

def bytes_of(what):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024

def measure(n, classes):
    x = torch.randn(n, 8)
    retrieval_metrics(x, torch.arange(n) % classes, max_memory=memory)

grown = {}
for classes in (4000, 60, 10):
    measure(2 * classes + 10, classes)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = bytes_of("VmRSS")
    measure(items, classes)
    grown[classes] = bytes_of("VmHWM") - before
print(json.dumps({"grown": grown, "torchvision": "torchvision" in sys.modules}))
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_memory_stays_within_what_is_allowed() -> None:
    items, memory = 12_000, 24 * 2**20
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(items), str(memory)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    measured = json.loads(run.stdout)
    matrix = 4 * items**2  # a full one in float32 has 576 MB
    for classes, grown in measured["grown"].items():
        assert grown < memory + 40 * 2**20 < matrix / 4, classes
    assert not measured["torchvision"]
