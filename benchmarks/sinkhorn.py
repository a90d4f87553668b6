"""Time the Sinkhorn iterations of optimal-transport pooling: fused kernels against unrolled torch.

    python benchmarks/sinkhorn.py --out runs/sinkhorn            # about a minute on a CUDA device
    python benchmarks/sinkhorn.py --out runs/sinkhorn --quick    # seconds; smoke test

Forward and backward pass of ``uniform_transport`` with 100 iterations at ε = 10, on 32 images of
n = 256 features and m = 8 or 64 prototypes, called one by one (eager) and replayed as a CUDA graph.
Both take turns in the same rounds; ratios are medians of the ratios per round. The largest
difference of their gradients, relative to the largest gradient, is stored too.

Writes results.json (every number) and table.md to --out after each size. Errors are recorded in
their rows: on a CPU, the fused kernels fail unless TRITON_INTERPRET=1 is set. Graphs need CUDA.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, flags, machine
from _timing import Clock, capture, release, time_in_rounds
from _writing import write
from torch import Tensor, nn

from sumpool.pooling.rivals.optimal_transport import uniform_transport
from sumpool.studies.cost.step_timing import Step

#: Images, features, prototypes, iterations.
SIZES = ((32, 256, 8, 100), (32, 256, 64, 100))
QUICK_SIZES = ((2, 9, 4, 3),)
EPS = 10.0
#: In the order of a round; ratios divide the first by the second.
WAYS = ("unrolled", "fused")

Row = dict[str, Any]


class Transport(nn.Module):
    """The transport plan of costs, fused or unrolled."""

    def __init__(self, iterations: int, fused: bool) -> None:
        super().__init__()
        self.iterations, self.fused = iterations, fused

    def forward(self, cost: Tensor) -> Tensor:
        return uniform_transport(cost, EPS, self.iterations, fused=self.fused)


def measure(size: tuple[int, int, int, int], clock: Clock) -> list[Row]:
    """Return one row per mode for one size."""
    batch, n, m, iterations = size
    cost = 2 * torch.rand(batch, n, m, generator=torch.Generator().manual_seed(0))
    steps: dict[str, Step] = {}
    errors: dict[str, str] = {}
    gradients: dict[str, Tensor] = {}
    for way in WAYS:
        leaf = cost.to(clock.device).requires_grad_()
        step = Step(Transport(iterations, way == "fused"), [leaf])
        try:
            step()
            assert leaf.grad is not None
            gradients[way] = leaf.grad.clone()
            steps[way] = step
        except Exception as error:
            errors[way] = describe(error)
    difference = None
    if len(gradients) == len(WAYS):
        unrolled, fused = gradients.values()
        difference = float((fused - unrolled).abs().max() / unrolled.abs().max())
    rows = [row_of(size, "eager", dict(steps), errors, clock)]
    if clock.device.type == "cuda":
        replays: dict[str, Callable[[], object]] = {}
        errors = dict(errors)
        for way, step in steps.items():
            try:
                replays[way] = capture(step)
            except Exception as error:
                errors[way] = describe(error)
        rows.append(row_of(size, "graph", replays, errors, clock))
    for row in rows:
        row["gradient_difference"] = difference
    return rows


def row_of(
    size: tuple[int, int, int, int],
    mode: str,
    calls: dict[str, Callable[[], object]],
    errors: dict[str, str],
    clock: Clock,
) -> Row:
    """Time both ways in the same rounds, for one size and mode."""
    timed = time_in_rounds(calls, clock)
    times = timed.times
    ratios = [a / b for a, b in zip(*(times.get(way, []) for way in WAYS), strict=False)]
    return {
        **dict(zip(("B", "n", "m", "iterations"), size, strict=True)),
        "mode": mode,
        "rounds_ms": times,
        "median_ms": {way: statistics.median(times[way]) for way in WAYS if way in times},
        "ratio": statistics.median(ratios) if ratios else None,
        "ratio_range": [min(ratios), max(ratios)] if ratios else None,
        "errors": errors | {way: describe(error) for way, error in timed.failures.items()},
    }


def describe(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def markdown(results: dict[str, Any]) -> str:
    """Format all rows as a table."""
    lines = [
        f"{results['machine']['device_name']}, torch {results['machine']['torch']}: forward and "
        "backward pass, ms",
        "",
        "| B | n | m | iterations | mode | unrolled | fused | unrolled / fused | gradients off |",
        "|---:|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in results["rows"]:
        times = [number(row["median_ms"].get(way)) for way in WAYS]
        cells = [row["B"], row["n"], row["m"], row["iterations"], row["mode"], *times]
        cells += [number(row["ratio"]), number(row["gradient_difference"])]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    for row in results["rows"]:
        for way, error in row["errors"].items():
            lines += ["", f"- {row['mode']}, m = {row['m']}, {way}: {error}"]
    return "\n".join(lines) + "\n"


def number(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/sinkhorn"), help="folder of the results")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--rounds", type=int, help="rounds; default 9 on CUDA, 3 on the CPU")
    add("--quick", action="store_true", help="a tiny size, to see that all runs (seconds)")
    args = parser.parse_args(arguments)
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    device = torch.device(args.device)
    rounds = args.rounds or (2 if args.quick else 9 if args.device == "cuda" else 3)
    clock = Clock(device, rounds=rounds, seconds=0.001 if args.quick else 0.1)
    results: dict[str, Any] = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command_line(__file__, arguments),
        "machine": machine(device),
        "flags": flags(),
        "settings": {"eps": EPS, "rounds": rounds, "quick": args.quick},
        "complete": False,
        "rows": [],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for size in QUICK_SIZES if args.quick else SIZES:
        results["rows"] += measure(size, clock)
        write(args.out, results, markdown(results))
        release(device)
    results["complete"] = True
    table = markdown(results)
    write(args.out, results, table)
    print(table)


if __name__ == "__main__":
    main()
