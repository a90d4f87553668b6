"""Cost of chance-constrained proxies: a step with and without them, a draw, memory.

    python benchmarks/ccp.py --out docs/results/ccp-cpu

[thesis, sec. 3.3.2.3] reports 97 ms for a step of 32 images without proxies and 105 ms with them,
200 to 400 ms for a draw on SOP and In-shop, and the steps of training in its table 3.3. Here, a
step of EfficientNet-Lite0 on random images is timed with C2 alone, and with the proxies of the
thesis and the pull to the last solution, in interleaved rounds; a draw is that of Algorithm 2 among
embeddings, without the time to embed images. Memory is calculated: proxies, and weights of the last
solution. Takes a minute of CPU time per data set.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, flags, machine
from _timing import Clock, time_in_rounds
from _writing import write

from sumpool.ccp import Alternation, ProxyPairs
from sumpool.ccp.drawing import redraw_proxies
from sumpool.training import CcpConfig, TrainConfig, resolve
from sumpool.training.assemble import build_criterion, build_model

#: Classes, and proxies and candidate embeddings of each [thesis, sec. 3.3.2.1].
SETS = {"cub": (100, 8, 12), "sop": (11_318, 4, 7), "inshop": (3_997, 4, 7)}
BATCH, SIZE = 32, 128


def training_step(
    data_set: str, backbone: str, side: int, *, ccp: bool, device: torch.device
) -> Callable[[], None]:
    """Return a step on one batch of random images; with ``ccp``, in its second problem."""
    options = CcpConfig(enabled=True) if ccp else CcpConfig()
    config = TrainConfig("x", pool="gap", loss="c2", backbone=backbone, ccp=options)
    config = resolve(config, data_set)
    classes, proxies, candidates = SETS[data_set]
    torch.manual_seed(0)
    model = build_model(config).to(device).train()
    criterion = build_criterion(config, classes, data_set).to(device)
    learned = [*model.parameters(), *criterion.parameters()]
    optimizer = torch.optim.Adam([it for it in learned if it.requires_grad], lr=1e-5)
    images = torch.randn(BATCH, 3, side, side, device=device)
    labels = torch.arange(BATCH, device=device) // 4
    alternation = None
    if ccp:
        assert isinstance(criterion, ProxyPairs)
        drawn = torch.randn(classes, candidates, SIZE, device=device)
        alternation = Alternation(model, criterion, criterion)
        alternation.begin(drawn[:, :proxies], drawn)
        alternation.settle()
        alternation.renew(0, drawn)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(model(images), labels).backward()
        if alternation is not None:
            alternation.add_pull()
        optimizer.step()

    return step


def memory(data_set: str, backbone: str) -> dict[str, float]:
    """Bytes of the proxies and of the stored weights of the last solution."""
    classes, proxies, _ = SETS[data_set]
    config = resolve(TrainConfig("x", pool="gap", backbone=backbone), data_set)
    weights = sum(it.numel() for it in build_model(config).parameters() if it.requires_grad)
    return {"proxies": 4.0 * classes * proxies * SIZE, "weights": 4.0 * weights}


def measure(args: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """Return one row per data set: milliseconds of steps and of a draw, bytes."""
    rows = []
    for data_set in args.sets:
        classes, proxies, candidates = SETS[data_set]
        old = torch.randn(classes, proxies, SIZE, device=device)
        pool = torch.randn(classes, candidates, SIZE, device=device)

        def draw(old: torch.Tensor = old, pool: torch.Tensor = pool) -> None:
            redraw_proxies(old, pool, None)

        calls = {
            name: training_step(data_set, args.backbone, args.side, ccp=ccp, device=device)
            for name, ccp in (("base", False), ("ccp", True))
        }
        clock = Clock(device, args.rounds, args.seconds, now=time.process_time)
        found = time_in_rounds({**calls, "draw": draw}, clock)
        for failure in found.failures.values():
            raise failure
        times = {name: list(found.times[name]) for name in (*calls, "draw")}
        rows.append({"data_set": data_set, "ms": times, "bytes": memory(data_set, args.backbone)})
    return rows


def markdown(results: dict[str, Any]) -> str:
    """Format the rows as a table: medians, and medians of the per-round ratio of steps."""
    lines = [
        f"Measured on {results['machine']['device_name']}, torch {results['machine']['torch']}, "
        f"{results['date'][:10]}: medians of {results['settings']['rounds']} rounds; on a CPU "
        "it is CPU time.",
        "",
        "| classes of | step [ms] | with proxies [ms] | ratio | draw [ms] | proxies [MB] | "
        "kept weights [MB] |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results["rows"]:
        times = row["ms"]
        ratio = statistics.median(a / b for a, b in zip(times["ccp"], times["base"], strict=True))
        base, ccp, draw = (statistics.median(times[name]) for name in ("base", "ccp", "draw"))
        kept = row["bytes"]
        lines.append(
            f"| {row['data_set']} | {base:.0f} | {ccp:.0f} | {ratio:.2f} | {draw:.1f} | "
            f"{kept['proxies'] / 1e6:.1f} | {kept['weights'] / 1e6:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/bench-ccp"), help="folder of the results")
    add("--sets", nargs="+", choices=SETS, default=list(SETS), help="whose numbers of classes")
    add("--backbone", default="tf_efficientnet_lite0")
    add("--side", type=int, default=227, help="side of the images")
    add("--rounds", type=int, default=7)
    add("--seconds", type=float, default=0.5, help="about how long a turn lasts")
    args = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results = {
        "command": command_line(__file__, arguments),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(device),
        "flags": flags(),
        "settings": {"batch": BATCH, "rounds": args.rounds, "seconds": args.seconds},
        "rows": measure(args, device),
    }
    write(args.out, results, markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
