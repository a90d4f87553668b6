"""Time greedy k-center and steps of the center regularizers, and measure memory of the latter.

    python benchmarks/centers.py               # minutes
    python benchmarks/centers.py --step r1     # one regularizer in this process, as JSON

  k-center      10,000 classes, pools of 12, 8 picks in addition to 8 centers, 128 dimensions
  regularizers  690,000 centers of 128 dimensions: forward and backward pass with the default subset

Each regularizer runs in its own process. Memory is the growth of peak resident memory after the
centers are in place, including the gradient of all centers (353 MB).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from _machine import machine

from sumpool.centers import REGULARIZERS, build_regularizer, greedy_k_center

CENTERS, SIZE = 690_000, 128
CLASSES, POOL, PROXIES = 10_000, 12, 8


def k_center_seconds(repeats: int = 5) -> list[float]:
    """Time the picks of all classes, in seconds."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(CLASSES, POOL, SIZE, generator=generator)
    chosen = torch.randn(CLASSES, PROXIES, SIZE, generator=generator)
    greedy_k_center(points, PROXIES, chosen)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        greedy_k_center(points, PROXIES, chosen)
        seconds.append(time.perf_counter() - begun)
    return seconds


def step(name: str, subset: int | None, repeats: int = 3) -> dict[str, Any]:
    """Measure time and memory of a step of the regularizer ``name``."""
    # A small step first, so that allocations of libraries at their first use are not counted.
    build_regularizer(name)(torch.randn(64, SIZE, requires_grad=True)).backward()
    centers = torch.randn(CENTERS, SIZE, generator=torch.Generator().manual_seed(0))
    centers.requires_grad_()
    regularizer = build_regularizer(name, subset=subset)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(repeats):
        centers.grad = None
        begun = time.perf_counter()
        regularizer(centers).backward()
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert centers.grad is not None
    return {
        "name": name,
        "subset": subset,
        "centers": CENTERS,
        "seconds": seconds,
        "additional_bytes": 1024 * (peak - before),  # Linux counts in KiB
        "gradient_finite": bool(centers.grad.isfinite().all()),
    }


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", choices=sorted(REGULARIZERS), help="one regularizer, as JSON")
    parser.add_argument("--subset", type=int, help="classes to draw, in place of the default")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default all cores")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    if args.step is not None:
        print(json.dumps(step(args.step, args.subset)))
        return
    print(f"{machine(torch.device('cpu'))['device_name']}, torch {torch.__version__}")
    print(f"k-center: {statistics.median(k_center_seconds()):.3f} s")
    options = ["--threads", str(args.threads)]
    options += [] if args.subset is None else ["--subset", str(args.subset)]
    for name in REGULARIZERS:
        done = subprocess.run(
            [sys.executable, __file__, "--step", name, *options],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        answer = json.loads(done.stdout)
        print(
            f"{name}: {statistics.median(answer['seconds']):.2f} s per step, "
            f"{answer['additional_bytes'] / 1e6:.0f} MB beside the centers"
        )


if __name__ == "__main__":
    main()
