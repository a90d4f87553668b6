"""Steps per second of the training loop, by data feed.

    python benchmarks/training.py --data CUB_200_2011 --out docs/results/training-h200

The same loop (EfficientNet-Lite0, C2, batch 32, GSP with the zero-shot loss, and GAP) is fed with
images from a cache on the device, from a cache in memory, decoded on the fly, and with one batch of
random tensors on the device, which gives the upper bound. All are measured in each round, in
rotating order. Takes 3 minutes on an H200.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, flags, machine
from _writing import write

from sumpool.data import Batch, ClassBatchSampler, ImageFeed, open_feed
from sumpool.training import (
    HardwareConfig,
    StopConfig,
    TrainConfig,
    Trainer,
    ZeroShotConfig,
    resolve,
)
from sumpool.training.assemble import build_fabric, build_model, build_task
from sumpool.training.splits import open_splits

FEEDS = ("random", "gpu", "ram", "none")
POOLS = ("gap", "gsp")


class RandomFeed(ImageFeed):
    """Repeats one batch of noise on the device."""

    def __init__(self, other: ImageFeed, device: torch.device) -> None:
        self.dataset, self.preprocessing, self._device = other.dataset, other.preprocessing, device

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        side = self.preprocessing.crop
        indices = torch.tensor(sampler.local_batch(0))
        images = torch.randn(len(indices), 3, side, side, device=self._device)
        labels = self.dataset.labels[indices].to(self._device)
        while True:
            yield Batch(images, labels, indices)

    def test_batches(self, *_: Any, **__: Any) -> Iterator[Batch]:
        raise NotImplementedError("nothing is evaluated here")


class TimedFeed(ImageFeed):
    """Records when the first batch after ``warmup`` batches is requested."""

    def __init__(self, feed: ImageFeed, warmup: int) -> None:
        self.dataset, self.preprocessing = feed.dataset, feed.preprocessing
        self._feed, self._warmup, self.begun = feed, warmup, 0.0

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        batches = self._feed.train_batches(sampler, start)
        try:
            for number, batch in enumerate(batches):
                if number == self._warmup:
                    wait()
                    self.begun = time.perf_counter()
                yield batch
        finally:
            batches.close()  # type: ignore[attr-defined]

    def test_batches(self, *_: Any, **__: Any) -> Iterator[Batch]:
        raise NotImplementedError("nothing is evaluated here")


def wait() -> None:
    """Wait until the device is idle."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def steps_per_second(config: TrainConfig, feed: ImageFeed, steps: int, warmup: int) -> float:
    """Measure the speed of a run of ``steps`` steps, without its first ``warmup``."""
    fabric = build_fabric(config)
    timed = TimedFeed(feed, warmup)
    nothing = {"mean_average_precision_at_r": 0.0}
    task = build_task(config, build_model(config), timed, lambda _: nothing, fabric, data_set="cub")
    Trainer(fabric, task, config, progress=False).fit()
    wait()
    return (steps - warmup) / (time.perf_counter() - timed.begun)


def open_feeds(
    args: argparse.Namespace, base: TrainConfig, device: torch.device
) -> tuple[str, dict[str, ImageFeed]]:
    """Return the name of the data set, and the feeds by name."""
    splits = open_splits(base)
    view = build_model(resolve(base, splits.name)).preprocessing
    opened: dict[str, ImageFeed] = {}
    for name in args.feeds:
        if name != "random":
            opened[name] = open_feed(
                splits.train, view, cache=name, device=device, workers=args.workers
            )
    opened["random"] = RandomFeed(next(iter(opened.values())), device)
    return splits.name, opened


def measure(args: argparse.Namespace, results: dict[str, Any], cuda: bool) -> None:
    """Fill ``results`` with one row per pooling, launch mode and feed: steps per second by round.

    Rows are written once all feeds had their turn, so that they can be divided by those of random
    tensors.
    """
    base = TrainConfig(data=args.data, fold=1)
    data_set, opened = open_feeds(args, base, torch.device("cuda" if cuda else "cpu"))
    speeds: dict[tuple[str, bool, str], list[float]] = {}
    for turn in range(args.rounds):
        first = turn % len(args.feeds)
        for pool, graph in product(args.pools, (False, True) if cuda else (False,)):
            config = configured(args, base, pool, graph, data_set)
            for name in [*args.feeds[first:], *args.feeds[:first]]:
                speed = steps_per_second(config, opened[name], args.steps, args.warmup)
                speeds.setdefault((pool, graph, name), []).append(speed)
                print(f"{pool} {'graph' if graph else 'eager'} {name}: {speed:.1f} steps/s")
            results["rows"] = [
                {"pool": pool, "cuda_graph": graph, "feed": name, "steps_per_second": values}
                for (pool, graph, name), values in speeds.items()
            ]
            write(args.out, results, markdown(results))


def configured(
    args: argparse.Namespace, base: TrainConfig, pool: str, graph: bool, data_set: str
) -> TrainConfig:
    """Configure the measured run."""
    changed = replace(
        base,
        pool=pool,
        zero_shot=ZeroShotConfig(weight=0.1 if pool == "gsp" else 0.0),
        hardware=HardwareConfig(cuda_graph=graph),
        stop=StopConfig(validate_every=args.steps, patience=1, max_steps=args.steps),
    )
    return resolve(changed, data_set)


def markdown(results: dict[str, Any]) -> str:
    """Format the rows as a table: medians, and medians of the per-round ratio to random tensors."""
    rows = results["rows"]
    planned = "" if results["complete"] else "up to "
    best = {
        (row["pool"], row["cuda_graph"]): row["steps_per_second"]
        for row in rows
        if row["feed"] == "random"
    }
    lines = [
        f"Measured on {results['machine']['device_name']}, torch {results['machine']['torch']}, "
        f"{results['date'][:10]}: medians of {planned}"
        f"{results['settings']['rounds']} rounds of "
        f"{results['settings']['steps'] - results['settings']['warmup']} steps.",
        "",
        "| pooling | launches | feed | steps/s | images/s | ratio to random tensors |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        speed = statistics.median(row["steps_per_second"])
        pairs = zip(row["steps_per_second"], best[row["pool"], row["cuda_graph"]], strict=True)
        ratio = statistics.median(own / other for own, other in pairs)
        way = "CUDA graph" if row["cuda_graph"] else "eager"
        lines.append(
            f"| {row['pool']} | {way} | {row['feed']} | {speed:.1f} | {32 * speed:.0f} | "
            f"{ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", required=True, help="folder with labeled images, such as CUB_200_2011")
    add("--out", type=Path, default=Path("runs/bench-training"), help="folder of the results")
    add("--feeds", nargs="+", choices=FEEDS, default=None, help="default: all the machine can do")
    add("--pools", nargs="+", choices=POOLS, default=list(POOLS))
    add("--steps", type=int, default=250, help="steps of a measurement")
    add("--warmup", type=int, default=50, help="of these, steps that are not counted")
    add("--rounds", type=int, default=3)
    add("--workers", type=int, help="processes that decode for the feed none")
    args = parser.parse_args(arguments)
    cuda = torch.cuda.is_available()
    args.feeds = args.feeds or [name for name in FEEDS if cuda or name != "gpu"]
    if "random" not in args.feeds or len(args.feeds) < 2:
        parser.error("--feeds: random and at least one other are needed for a ratio")
    results: dict[str, Any] = {
        "command": command_line(__file__, arguments),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(torch.device("cuda" if cuda else "cpu")),
        "flags": flags(),
        "settings": {"steps": args.steps, "warmup": args.warmup, "rounds": args.rounds},
        "complete": False,
        "rows": [],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    measure(args, results, cuda)
    results["complete"] = True
    table = markdown(results)
    write(args.out, results, table)
    print(table)


if __name__ == "__main__":
    main()
