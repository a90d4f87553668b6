"""Working memory does not grow with the number of pairs, models or combinations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, torch
from pathlib import Path
from sumpool.evaluation.concatenated.metrics import concatenated_metrics

torch.set_num_threads(1)
items, memory, classes, related = (int(x) for x in sys.argv[1:])

def bytes_of(what):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024

def measure(n, classes):
    labels = torch.arange(n) % classes
    base = torch.randn(classes, 8)[labels] + torch.randn(n, 8)
    models = [related * base + torch.randn(n, 8) for _ in range(8)]
    groups = [[0, 1], [2, 3], [4, 5], [6, 7]]
    concatenated_metrics(models, labels, groups=groups, max_memory=memory)

measure(60, 6)
Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
before = bytes_of("VmRSS")
measure(items, classes)
print(json.dumps(bytes_of("VmHWM") - before))
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("classes", "related"),
    [
        pytest.param(1000, 5, id="few candidates"),
        pytest.param(1000, 0, id="every item a candidate"),
        pytest.param(15, 5, id="many matches"),
    ],
)
def test_memory_stays_within_what_is_allowed(classes: int, related: int) -> None:
    items, memory = 2500, 12 * 2**20
    arguments = [str(it) for it in (items, memory, classes, related)]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    matrices = 8 * 4 * items**2  # 200 MB in float32
    assert json.loads(run.stdout) < memory + 35 * 2**20 < matrices / 4
