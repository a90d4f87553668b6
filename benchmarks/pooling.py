"""Time the poolings, forward and backward, against average pooling, on a CPU or a CUDA device.

    python benchmarks/pooling.py --out runs/bench            # about 3 minutes on either device
    python benchmarks/pooling.py --out runs/bench --quick    # seconds; smoke test

Variants: gap (average pooling, timed at both ends of each round), exact (plain), exact-compiled
(torch.compile of map and pooling), keys and keys-compiled (GSP on keys that starts as a power mean,
then the map), fused and keys-fused (CUDA), iterative-k (the papers' iteration in the log domain,
with the closed-form gradient), linear-k (the same in the linear domain), autodiff-k (differentiated
through its k iterations) and, for pooling alone, printed-k (the same with both matrix products in
every iteration, as printed in the papers).

Sections:
  layer    1×1 map and pooling, four sizes (on a CPU only the first: others take minutes each)
  alone    pooling alone, the same sizes
  growth   pooling alone against k, n, m and d
  resnet   a ResNet-50 training step with each head; on a CPU only on request

Writes results.json (every number) and table.md to --out after each group of measurements, and
cost.png (time and memory against k) at the end. Errors are recorded in their rows; the rest
continues.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _groups import DTYPES, ROTATED_BYTES, SECTIONS, SIZES, Plan, groups_of
from _machine import command_line, flags, machine
from _measuring import empty_row, measure
from _tables import markdown, targets, targets_table
from _timing import Clock, release
from tqdm import tqdm

from sumpool.system.files import write_atomic


def run(plan: Plan, clock: Clock, minutes: float, out: Path, command: str) -> dict[str, Any]:
    """Measure all groups, writing the results so far after each."""
    begun = time.perf_counter()
    groups = list(groups_of(plan))
    results: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command,
        "machine": machine(plan.device),
        "flags": flags(),
        "settings": {
            "quick": plan.quick,
            "rounds": clock.rounds,
            "seconds_a_turn": clock.seconds,
            "clock": clock.now.__name__ if plan.device.type == "cpu" else "device events",
            "channels_last": plan.channels_last,
            "rotated_bytes": ROTATED_BYTES,
            "mu": 0.3,
            "eps": 5.0,
        },
        "load_average": {"before": os.getloadavg(), "after": None},
        "seconds": None,
        "complete": False,
        "targets": [],
        "rows": [],
    }
    out.mkdir(parents=True, exist_ok=True)
    total = sum(len(group.names) for group in groups)
    quiet = 0.5 if sys.stderr.isatty() else 10.0
    with tqdm(total=total, desc="pooling", unit="variant", mininterval=quiet) as bar:
        for group in groups:
            elapsed = time.perf_counter() - begun
            if elapsed > 60 * minutes:
                for name in group.names:
                    row = empty_row(group, name)
                    row["error"] = f"skipped: {minutes:g} minutes were over"
                    results["rows"].append(row)
                bar.update(len(group.names))
                continue
            results["rows"] += measure(group, clock, bar)
            results["seconds"] = time.perf_counter() - begun
            write(results, out)
            release(plan.device)
            try:
                clock.synchronize()
            except RuntimeError as error:
                bar.write(f"the device no longer answers, stopping: {error}")
                return results
    results["seconds"] = time.perf_counter() - begun
    results["load_average"]["after"] = os.getloadavg()
    results["complete"] = True
    write(results, out)
    return results


def write(results: dict[str, Any], out: Path) -> None:
    """Write results and tables, each atomically."""
    if not results["settings"]["quick"]:
        results["targets"] = targets(results["rows"], results["machine"]["device"])
    write_atomic(out / "results.json", as_json(results).encode())
    write_atomic(out / "table.md", markdown(results).encode())


def as_json(results: dict[str, Any]) -> str:
    """Format the results as JSON, one line per row."""
    head = json.dumps({**results, "rows": None}, indent=1, ensure_ascii=False)
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in results["rows"])
    return head.replace('"rows": null', f'"rows": [\n  {rows}\n ]') + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/bench"), help="folder of the results")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--sections", help=f"some of {','.join(SECTIONS)}; default all, resnet on CUDA only")
    add("--dtype", help=f"some of {','.join(DTYPES)}; default both on CUDA, float32 on the CPU")
    add(
        "--float32",
        choices=("torch", "exact", "tf32"),
        default="torch",
        help="on CUDA, how float32 is multiplied: exact or tf32 everywhere, or as torch has it, "
        "convolutions (the map of gap) in tf32 and products (that of keys) exactly",
    )
    add("--sizes", type=int, help=f"the first so many of {len(SIZES)}; default all on CUDA, else 1")
    add("--variants", help="only these beside gap, such as keys,keys-compiled; default all")
    add("--quick", action="store_true", help="tiny sizes, to see that all runs (seconds)")
    add(
        "--compile",
        choices=("none", "some", "all"),
        help="where …-compiled is timed: some = the first two sizes of the first dtype "
        "(default; 10 to 40 s each to compile), none with --quick",
    )
    add("--channels-last", action="store_true", help="maps in the channels_last layout")
    add("--rounds", type=int, help="rounds; default 9 on CUDA, 5 on the CPU")
    add("--threads", type=int, help="CPU threads; default torch's")
    add(
        "--processor-time",
        action="store_true",
        help="on the CPU, count the processor's seconds instead of the wall clock's: for machines "
        "that others use too, with --threads 1",
    )
    add("--minutes", type=float, help="begin no group after these; default 3 on CUDA, else no end")
    args = parser.parse_args(arguments)
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = args.device == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    if args.float32 != "torch":
        if not cuda:
            parser.error(f"--float32 {args.float32} is for --device cuda")
        torch.backends.cudnn.allow_tf32 = args.float32 == "tf32"
        torch.set_float32_matmul_precision("high" if args.float32 == "tf32" else "highest")
    if args.threads:
        torch.set_num_threads(args.threads)
    sections = SECTIONS if cuda else tuple(name for name in SECTIONS if name != "resnet")
    dtypes = tuple(DTYPES) if cuda else ("float32",)
    plan = Plan(
        device=torch.device(args.device),
        sections=chosen(parser, "--sections", args.sections, SECTIONS, sections),
        dtypes=chosen(parser, "--dtype", args.dtype, tuple(DTYPES), dtypes),
        quick=args.quick,
        compile=args.compile or ("none" if args.quick else "some"),
        channels_last=args.channels_last,
        most_sizes=args.sizes or (len(SIZES) if cuda else 1),
        only=None if args.variants is None else frozenset(args.variants.split(",")),
    )
    names = {name for group in groups_of(replace(plan, only=None)) for name in group.names}
    if plan.only:
        chosen(parser, "--variants", args.variants, tuple(sorted(names)), ())
    clock = Clock(
        plan.device,
        rounds=args.rounds or (2 if args.quick else 9 if cuda else 5),
        seconds=0.001 if args.quick else 0.01 if cuda else 0.1,
        now=time.process_time if args.processor_time else time.perf_counter,
    )
    minutes = args.minutes or (3.0 if cuda else math.inf)
    results = run(plan, clock, minutes, args.out, command_line(__file__, arguments))
    print(markdown(results))
    draw(args.out)
    print(f"{results['seconds']:.0f} s; every number is in {args.out / 'results.json'}")
    if results["targets"]:
        print(targets_table(results["targets"]))


def chosen(
    parser: argparse.ArgumentParser,
    flag: str,
    text: str | None,
    choices: tuple[str, ...],
    default: tuple[str, ...],
) -> list[str]:
    """Parse a comma-separated ``text`` of names from ``choices``."""
    names = list(default) if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in choices]
    if unknown:
        parser.error(f"{flag}: no {unknown[0]!r}, choose from {', '.join(choices)}")
    return names


def draw(out: Path) -> None:
    """Draw the figure if possible; the numbers are complete without it."""
    try:
        import _cost_figure

        _cost_figure.draw(out / "results.json", out / "cost.png")
    except (ImportError, ValueError) as error:
        print(f"no figure: {error}")


if __name__ == "__main__":
    main()
