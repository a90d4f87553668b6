"""CPU time of a network by the layout of its maps and the handling of freed memory.

    python benchmarks/network.py --out runs/network

Runs the packaged network on random images without gradients, with maps in NCHW and in NHWC, and
with large blocks of freed memory returned to the system, as the C library does by default, or kept
for reuse (`sumpool.system.memory`). Each combination runs in its own process, and all take turns
--rounds times; the best time of each counts. Takes about four minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from pathlib import Path

import torch
from _machine import command_line, machine
from _writing import write

from sumpool.models.backbones import run_backbone
from sumpool.models.pretrained import pretrained_embedder
from sumpool.report.tables import Table
from sumpool.system.memory import reuse_freed_memory

LAYOUTS, MEMORY = ("NCHW", "NHWC"), ("given back", "kept")


@torch.no_grad()
def measure(layout: str, memory: str, batch: int) -> float:
    """Measure seconds per image in this process."""
    if memory == "kept":
        reuse_freed_memory()
    model = pretrained_embedder().eval()
    side = model.preprocessing.crop
    images = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    best = float("inf")
    for _ in range(4):
        begun = time.perf_counter()
        model.backbone(images) if layout == "NCHW" else run_backbone(model.backbone, images)
        best = min(best, time.perf_counter() - begun)
    return best / batch


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(measure(args.one[0], args.one[1], args.batch))
        return
    ways = [(layout, memory) for memory in MEMORY for layout in LAYOUTS]
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(args.rounds):
        for way in ways:
            call = [sys.executable, __file__, *sys.argv[1:], "--one", *way]
            ended = subprocess.run(call, capture_output=True, text=True, check=True)
            seconds[way] = min(seconds[way], float(ended.stdout))
    slowest = seconds[ways[0]]
    table = Table(
        ["maps", "memory that is freed", "ms per image", "ratio"],
        [[*way, f"{1000 * it:.1f}", f"{slowest / it:.2f}"] for way, it in seconds.items()],
    )
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command_line(__file__),
        "machine": machine(torch.device("cpu")),
        "rows": [
            {"layout": layout, "memory": memory, "seconds_per_image": it}
            for (layout, memory), it in seconds.items()
        ],
    }
    write(args.out, results, table.markdown())
    print(table.text())


if __name__ == "__main__":
    main()
