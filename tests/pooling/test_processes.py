"""Processes that train together start from the same prototypes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from sumpool.pooling import GeneralizedSumPool2d

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
layer = GeneralizedSumPool2d(4, prototypes=3)
layer(torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(rank)))
torch.save(layer.prototypes.detach(), f"{folder}/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.process
def test_all_processes_take_the_prototypes_of_the_first(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for process in running:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert torch.equal(first, second)
