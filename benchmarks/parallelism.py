"""Steps per second of parallel runs on one GPU, by their number and the way steps are executed.

    python benchmarks/parallelism.py --data CUB_200_2011 --out docs/results/parallelism-h200

Runs like those of `sumpool bench` (EfficientNet-Lite0, C2, GSP with the zero-shot loss, batch 32,
decoded images on the GPU), one per process, alone and 2 to 16 in parallel, with and without
NVIDIA's multi-process service (MPS). Steps are eager, with the network captured as CUDA graphs, or
captured whole, also with a compiled backbone and with bfloat16. Processes are started once for all
counts: all are warmed up, then some of them train for a given time while the others wait. There is
no validation. Takes less than 5 minutes on an H200: measurements that do not start within --budget
are skipped and listed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from _machine import command_line
from _parallelism_group import Group, GroupError
from _parallelism_process import base_config
from _writing import write

from sumpool.data import decode_images
from sumpool.system.executors.mps import mps_server, serving_folder
from sumpool.training import resolve
from sumpool.training.assemble import build_model
from sumpool.training.splits import open_splits

#: Ways to execute a step, as changes to HardwareConfig.
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "eager bf16": {"precision": "bf16-mixed"},
    "step": {"cuda_step": True},
    "step bf16": {"cuda_step": True, "precision": "bf16-mixed"},
    "graph": {"cuda_graph": True},
    "step compiled": {"cuda_step": True, "compile": True},
    "step compiled bf16": {"cuda_step": True, "compile": True, "precision": "bf16-mixed"},
}
#: Baselines: one process without MPS, at the same precision.
BASES = ("eager", "step")
#: Modes measured at every count, others only at a few; and modes measured also without MPS.
MAIN = ("step", "step compiled bf16")
WITHOUT_MPS = ("eager", "eager bf16", "step", "step bf16")
#: A mode, and the numbers of processes it is measured with.
Counts = tuple[str, list[int]]


def plan(args: argparse.Namespace, cuda: bool) -> Iterator[tuple[bool, list[Counts]]]:
    """Yield whether to use MPS, and the modes to measure with their counts."""
    counts = sorted(args.processes)
    few = sorted({counts[0], counts[len(counts) // 2], counts[-1]})

    def at(mode: str) -> Counts:
        return mode, counts if mode in MAIN or not cuda else few

    for mps in args.mps if cuda else [False]:
        modes = [it for it in args.modes if (cuda and (mps or it in WITHOUT_MPS)) or it == "eager"]
        # The main modes come first, in case time runs out.
        yield mps, [at(mode) for mode in sorted(modes, key=lambda it: it not in MAIN)]


def measure(args: argparse.Namespace, results: dict[str, Any], cuda: bool) -> None:
    """Fill ``results`` row by row, and write it after each."""
    begun = time.monotonic()
    options = {
        "data": args.data,
        "pool": args.pool,
        "warmup": args.warmup,
        "threads": 1,
        "cache_dir": str(args.cache_dir),
    }
    decode_once(args)
    for mps, modes in plan(args, cuda):
        with ExitStack() as stack:
            service = stack.enter_context(mps_server()) if mps else None
            if service is not None and not service.serving:
                results["left_out"].append(f"MPS: {service.why}")
                continue
            waiting = modes
            while waiting:  # a failed group is replaced by another
                waiting = measure_group(args, results, options, mps, waiting, begun)


def measure_group(
    args: argparse.Namespace,
    results: dict[str, Any],
    options: dict[str, Any],
    mps: bool,
    modes: list[Counts],
    begun: float,
) -> list[Counts]:
    """Measure ``modes`` with one group of processes; return the remaining ones if it fails."""
    place = "with MPS" if mps else "without MPS"
    with (
        tempfile.TemporaryDirectory() as logs,
        Group(max(args.processes), options, Path(logs)) as group,
    ):
        loaded = group.loaded()
        results["machine"], results["flags"] = loaded["machine"], loaded["flags"]
        for number, (mode, counts) in enumerate(modes):
            if time.monotonic() - begun > args.budget:
                results["left_out"].append(f"{mode} {place}: no time left of {args.budget:.0f} s")
                continue
            try:
                rows = measure_mode(args, group, mode, counts)
            except GroupError as error:
                results["left_out"].append(f"{mode} {place}: {error}")
                write(args.out, results, markdown(results))
                return modes[number + 1 :]
            for row in rows:
                results["rows"].append({"mps": mps, **row})
            results["seconds"] = time.monotonic() - begun
            write(args.out, results, markdown(results))
            for row in rows:
                speed = statistics.median(row["steps_per_second"])
                print(f"{place}, {row['processes']} × {mode}: {speed:.1f} steps/s", flush=True)
    return []


def measure_mode(
    args: argparse.Namespace, group: Group, mode: str, counts: list[int]
) -> list[dict[str, Any]]:
    """Return one row per count: total steps per second of all processes, in each round."""
    memory = group.build(MODES[mode])
    rows: dict[int, dict[str, Any]] = {
        count: {"way": mode, "processes": count, "steps_per_second": [], "slowest": []}
        for count in counts
    }
    for turn in range(args.rounds):
        for count in counts if turn % 2 == 0 else counts[::-1]:
            rates = group.run(count, args.seconds)
            rows[count]["steps_per_second"].append(sum(rates))
            rows[count]["slowest"].append(min(rates))
    group.drop()
    if "used_bytes" in memory[0]:
        used = {
            "reserved_bytes": max(it["reserved_bytes"] for it in memory),
            "used_bytes_a_process": max(it["used_bytes"] for it in memory) / len(memory),
        }
        for row in rows.values():
            row.update(used)
    return list(rows.values())


def decode_once(args: argparse.Namespace) -> None:
    """Decode the images before the processes map them."""
    config = base_config(args.data, args.pool, str(args.cache_dir))
    if config.cache_dir is None:
        return
    splits = open_splits(config)
    view = build_model(resolve(config, splits.name)).preprocessing
    decode_images(splits.train, view.resize, cache_dir=config.cache_dir)


def markdown(results: dict[str, Any]) -> str:
    """Format the rows as a table, the fastest in bold."""
    settings, rows = results["settings"], results["rows"]
    speeds = [statistics.median(row["steps_per_second"]) for row in rows]
    alone = {
        row["way"]: speed
        for row, speed in zip(rows, speeds, strict=True)
        if row["processes"] == 1 and not row["mps"]
    }
    lines = [
        f"Measured on {results['machine'].get('device_name', 'nothing')}, "
        f"{results['machine'].get('cores')} cores, torch {results['machine'].get('torch')}, "
        f"{results['date'][:10]}: {settings['pool']}, batch 32, medians of {settings['rounds']} "
        f"rounds of {settings['seconds']:g} s. A run is {settings['steps']} steps, without "
        "validation.",
        "",
        "| step | MPS | processes | steps/s | × one eager | × one recorded | runs per hour "
        "| GB per process |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row, speed in zip(rows, speeds, strict=True):
        precision = " bf16" if row["way"].endswith(" bf16") else ""
        bases = [alone.get(name + precision) for name in BASES]
        ratios = ["" if base is None else f"{speed / base:.2f}" for base in bases]
        used = row.get("used_bytes_a_process")
        best = "**" if speed == max(speeds) else ""
        lines.append(
            f"| {row['way']} | {'yes' if row['mps'] else 'no'} | {row['processes']} "
            f"| {best}{speed:.1f}{best} | {ratios[0]} | {ratios[1]} "
            f"| {3600 * speed / settings['steps']:.1f} | {f'{used / 1e9:.1f}' if used else ''} |"
        )
    lines += ["", *(f"* Left out: {what}" for what in results["left_out"])]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", required=True, help="folder with labeled images, or glyphs, which are drawn")
    add("--out", type=Path, default=Path("runs/bench-parallelism"), help="folder of the results")
    add("--processes", type=int, nargs="+", default=[1, 2, 4, 8, 12, 16])
    add("--modes", nargs="+", choices=MODES, default=list(MODES), help="how steps are run")
    add("--mps", nargs="+", type=on_or_off, default=[False, True], help="off, on, or both")
    add("--pool", choices=("gap", "gsp"), default="gsp")
    add("--seconds", type=float, default=1.5, help="seconds of a measurement")
    add("--rounds", type=int, default=2, help="measurements of each configuration")
    add("--warmup", type=int, default=12, help="steps before a run is measured")
    add("--steps", type=int, default=6000, help="steps of a whole run")
    add("--budget", type=float, default=240.0, help="seconds after which nothing new is begun")
    add("--cache-dir", type=Path, help="folder for decoded images (OUT/decoded)")
    args = parser.parse_args(arguments)
    if min(args.processes) < 1 or args.seconds <= 0 or args.rounds < 1 or args.warmup < 5:
        parser.error("--processes and --rounds must be at least 1, --warmup 5, --seconds positive")
    args.cache_dir = args.cache_dir or args.out / "decoded"
    args.out.mkdir(parents=True, exist_ok=True)
    settings = ("data", "pool", "seconds", "rounds", "warmup", "steps", "budget")
    results: dict[str, Any] = {
        "command": command_line(__file__, arguments),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {},
        "flags": {},
        "settings": {name: getattr(args, name) for name in settings},
        "seconds": 0.0,
        "left_out": [],
        "rows": [],
    }
    cuda = torch.cuda.is_available()
    if cuda and False in args.mps and serving_folder() is not None:
        parser.error("--mps off cannot be measured: the multi-process service is running, end it")
    try:
        measure(args, results, cuda)
    except GroupError as error:
        sys.exit(f"error: {error}")
    table = markdown(results)
    write(args.out, results, table)
    print(table)


def on_or_off(text: str) -> bool:
    """Parse on or off."""
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"must be on or off, got {text!r}")
    return text == "on"


if __name__ == "__main__":
    main()
