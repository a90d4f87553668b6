"""Time the retrieval metrics of sumpool, pytorch-metric-learning and open-metric-learning.

    python benchmarks/evaluation.py --out runs/bench-evaluation          # about 20 minutes, 2 cores
    python benchmarks/evaluation.py --out runs/bench-evaluation --quick  # seconds; smoke test
    python benchmarks/evaluation.py --device cuda --dimensions 512 --sets sop --contenders sumpool

All compute P@1, R-precision and MAP@R of the same embeddings, query set = gallery:

  cub   5,924 × 128, 100 classes of 41 to 60
  sop   60,502 × 128, 11,316 classes of 2 to 12
  six   120,000 × 128, 6 classes of 20,000

Contenders: sumpool, sumpool-faiss (candidates from faiss), pytorch-metric-learning (its
AccuracyCalculator with its faiss search and k = "max_bin_count"), open-metric-learning (its
functions on the whole matrix) and open-metric-learning-rows (the same functions on 500 rows at a
time, which the library does not do by itself). The last two provide P@1 directly; the other metrics
follow from their results per query, see ``_contenders.py``.

Every contender runs in its own process with the same number of threads, in rounds of alternating
order; the first call in a process is not timed. Stored are all times, the time spent searching for
neighbors, and the peak resident memory. A contender that cannot run (not installed, too large) gets
a row with the reason. Writes results.json and table.md to --out after every run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _contenders import CONTENDERS, NAMES
from _machine import command_line, flags, machine
from _retrieval_sets import SETS
from _tables import check_target, targets_table
from _writing import write
from tqdm import tqdm

Row = dict[str, Any]

OURS = "sumpool"
#: Rounds, and timed calls in each.
TURNS = {"cub": (3, 5), "sop": (2, 1), "six": (1, 1), "tiny": (1, 2), "tiny-six": (1, 1)}
#: Sets for sumpool only: with 20,000 matches per query, the others run out of memory or time.
ALONE = ("six", "tiny-six")


def run(args: argparse.Namespace, command: str) -> dict[str, Any]:
    """Run all contenders on all sets, writing the results so far after each."""
    begun = time.perf_counter()
    results: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command,
        "machine": machine(torch.device(args.device)),
        "flags": flags(),
        "dimensions": args.dimensions,
        "load_average": {"before": os.getloadavg(), "after": None},
        "seconds": None,
        "complete": False,
        "targets": [],
        "rows": [],
    }
    plan = [
        (name, round_, contender)
        for name in args.sets
        for round_ in range(args.rounds or TURNS[name][0])
        for contender in in_turn(contenders_of(name, args.contenders), round_)
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    rows: dict[tuple[str, str], Row] = {}
    quiet = 0.5 if sys.stderr.isatty() else 10.0
    with tqdm(plan, unit="run", mininterval=quiet) as bar:
        for name, _, contender in bar:
            bar.set_description(f"{name}, {contender}")
            row = rows.setdefault((name, contender), empty_row(name, contender, args.dimensions))
            if not row["skipped"]:
                add(row, measured(name, contender, args))
            results["rows"] = list(rows.values())
            results["seconds"] = time.perf_counter() - begun
            finish(results, args.device)
            write(args.out, results, markdown(results))
    results["load_average"]["after"] = os.getloadavg()
    results["complete"] = True
    write(args.out, results, markdown(results))
    return results


def contenders_of(name: str, asked: list[str] | None) -> list[str]:
    if asked is not None:
        return asked
    return [OURS] if name in ALONE else list(CONTENDERS)


def in_turn(names: list[str], round_: int) -> list[str]:
    """Reverse every other round, so that drift affects all alike."""
    return names[::-1] if round_ % 2 else names


def measured(name: str, contender: str, args: argparse.Namespace) -> Row:
    """Run one process; return its answer, or why there is none."""
    order = {
        "contender": contender,
        "set": name,
        "dimensions": args.dimensions,
        "threads": args.threads,
        "repeats": TURNS[name][1],
        "device": args.device,
    }
    counts = {f"{library}_NUM_THREADS": str(args.threads) for library in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("_contenders.py")), json.dumps(order)],
        capture_output=True,
        text=True,
        env=os.environ | counts,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"skipped": f"failed with status {done.returncode}: {last[:200]}"}
    answer: Row = json.loads(done.stdout.splitlines()[-1])
    return answer


def empty_row(name: str, contender: str, dimensions: int) -> Row:
    """Create the row of a contender, with all fields, before anything is measured."""
    return {
        "set": name,
        "items": SETS[name].items,
        "classes": SETS[name].classes,
        "dimensions": dimensions,
        "contender": contender,
        "seconds": [],
        "search_seconds": [],
        "median_seconds": None,
        "metric_seconds": None,
        "times_ours": None,
        "resident_before": None,
        "peak_resident": None,
        "peak_device": None,
        "answer": None,
        "difference": None,
        "skipped": None,
    }


def add(row: Row, answer: Row) -> None:
    """Add the answer of a process to its row; memory is the maximum over processes."""
    for name, value in answer.items():
        if name in ("seconds", "search_seconds"):
            row[name] += value
        elif name in ("peak_resident", "peak_device", "resident_before") and value and row[name]:
            row[name] = max(row[name], value)
        else:
            row[name] = value


def finish(results: dict[str, Any], device: str) -> None:
    """Compute medians, ratios and differences of all rows, and check the targets."""
    rows: list[Row] = results["rows"]
    for row in rows:
        if row["seconds"]:
            row["median_seconds"] = statistics.median(row["seconds"])
            rests = [
                total - search
                for total, search in zip(row["seconds"], row["search_seconds"], strict=True)
                if search is not None
            ]
            row["metric_seconds"] = statistics.median(rests) if rests else None
    for row in rows:
        ours = find(rows, row["set"], OURS)
        if row["median_seconds"] and ours and ours["median_seconds"]:
            row["times_ours"] = row["median_seconds"] / ours["median_seconds"]
            row["difference"] = max(abs(row["answer"][n] - ours["answer"][n]) for n in NAMES)
    results["targets"] = targets(rows, device)


def find(rows: list[Row], name: str, contender: str) -> Row | None:
    """Find the row of a contender on a set."""
    return next((r for r in rows if (r["set"], r["contender"]) == (name, contender)), None)


def targets(rows: list[Row], device: str) -> list[dict[str, Any]]:
    """Compare the measured sets with their targets."""
    found: list[dict[str, Any]] = []
    hold = partial(check_target, found)
    for name, least in (("sop", 4.0), ("cub", 1.0)):
        others = [r for r in rows if r["set"] == name and not r["contender"].startswith(OURS)]
        ratios = [r["times_ours"] for r in others if r["times_ours"]]
        hold(f"{name}: the fastest other over ours", min(ratios) if ratios else None, "≥", least)
    gigabyte = 1e9
    for name, most in (("sop", 1.5), ("six", 2.0)):
        ours = find(rows, name, OURS)
        if ours and ours["peak_resident"] and device == "cpu":
            hold(f"{name}: peak memory, GB", ours["peak_resident"] / gigabyte, "≤", most)
    ours = find(rows, "sop", OURS)
    if ours:
        hold("sop: all but the search, s", ours["metric_seconds"], "≤", 1.0)
        if device == "cuda":
            hold("sop: on the device, s", ours["median_seconds"], "≤", 2.0)
    differences = [r["difference"] for r in rows if r["difference"] is not None]
    hold("largest difference between answers", max(differences, default=None), "≤", 1e-6)
    return found


def markdown(results: dict[str, Any]) -> str:
    """Format the results as tables."""
    machine = results["machine"]
    parts = [
        f"Measured on {machine['device_name']}, torch {machine['torch']}, {results['date'][:10]}: "
        f"{results['dimensions']} dimensions, medians over all calls.",
        "### Targets",
        targets_table(results["targets"]),
    ]
    for name in dict.fromkeys(row["set"] for row in results["rows"]):
        rows = [row for row in results["rows"] if row["set"] == name]
        size = f"{rows[0]['items']:,} items, {rows[0]['classes']:,} classes"
        lines = [
            "| | seconds | times ours | search, s | rest, s | peak memory, MB | MAP@R | off by |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        lines += [line(row) for row in rows]
        parts += [f"### {name}: {size}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def line(row: Row) -> str:
    """Format a row of the table."""
    if row["skipped"] or not row["seconds"]:
        return f"| {row['contender']} | {row['skipped'] or '–'} | | | | | | |"
    searches = [s for s in row["search_seconds"] if s is not None]
    cells = (
        f"{row['median_seconds']:.3g}",
        f"{row['times_ours']:.2f}" if row["times_ours"] else "–",
        f"{statistics.median(searches):.3g}" if searches else "–",
        f"{row['metric_seconds']:.2g}" if row["metric_seconds"] is not None else "–",
        f"{row['peak_resident'] / 1e6:.0f}",
        f"{row['answer']['mean_average_precision_at_r']:.6f}",
        f"{row['difference']:.1g}" if row["difference"] is not None else "–",
    )
    return f"| {row['contender']} | " + " | ".join(cells) + " |"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_ = parser.add_argument
    add_("--out", type=Path, default=Path("runs/bench-evaluation"), help="folder of the results")
    add_("--sets", nargs="+", choices=sorted(SETS), help="default cub, sop and six")
    add_("--contenders", nargs="+", choices=sorted(CONTENDERS), help="default all that can run")
    add_("--threads", type=int, default=os.cpu_count(), help="CPU threads; default all cores")
    add_("--dimensions", type=int, default=128)
    add_("--device", choices=("cpu", "cuda"), default="cpu", help="where sumpool computes")
    add_("--rounds", type=int, help="rounds, in place of 3 for cub, 2 for sop and 1 for six")
    add_("--quick", action="store_true", help="tiny sets, to see that all runs (seconds)")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    if args.sets is None:
        args.sets = ["tiny", "tiny-six"] if args.quick else ["cub", "sop", "six"]
    elif args.quick:
        parser.error("--quick has sets of its own: leave out --sets")
    results = run(args, command_line(__file__, arguments))
    print(markdown(results))
    print(f"{results['seconds']:.0f} s; every number is in {args.out / 'results.json'}")


if __name__ == "__main__":
    main()
