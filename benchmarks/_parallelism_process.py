"""A process of parallelism.py that trains a run on command.

It reads commands from stdin, one JSON value per line, and answers on stdout: "build" creates a run
and warms it up, "run" trains between two points in time, "drop" discards the run. It exits at the
end of its input.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TextIO

import torch
from _machine import flags, machine

from sumpool.data import Batch, ClassBatchSampler, ImageFeed
from sumpool.studies.shared.testbed import GLYPHS
from sumpool.training import (
    HardwareConfig,
    StopConfig,
    TrainConfig,
    Trainer,
    ZeroShotConfig,
    resolve,
)
from sumpool.training.assemble import build_fabric, build_model, build_task
from sumpool.training.prepare import build_feed
from sumpool.training.splits import open_splits

#: Maximum number of queued steps on the device, so that all stop at about the same time.
UNDER_WAY = 4


class DroppedError(Exception):
    """The run is discarded."""


class Line:
    """Channel for commands and answers."""

    def __init__(self, commands: TextIO, answers: TextIO) -> None:
        self._commands, self._answers = commands, answers

    def ask(self) -> dict[str, Any] | None:
        line = self._commands.readline()
        return json.loads(line) if line else None

    def tell(self, event: str, **more: Any) -> None:
        print(json.dumps({"event": event, **more}), file=self._answers, flush=True)


class PacedFeed(ImageFeed):
    """Yields batches on command, and reports the number of steps trained."""

    def __init__(self, feed: ImageFeed, warmup: int, line: Line) -> None:
        self.dataset, self.preprocessing = feed.dataset, feed.preprocessing
        self._feed, self._warmup, self._line = feed, warmup, line

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        batches = self._feed.train_batches(sampler, start)
        try:
            for _ in range(self._warmup):
                yield next(batches)
            synchronize()
            self._line.tell("ready", **memory())
            while True:
                command = self._line.ask()
                if command is None or command["do"] == "drop":
                    raise DroppedError
                yield from self._train(batches, command["begin"], command["end"])
        finally:
            batches.close()  # type: ignore[attr-defined]

    def _train(self, batches: Iterator[Batch], begin: float, end: float) -> Iterator[Batch]:
        time.sleep(max(0.0, begin - time.time()))
        begun, steps = time.perf_counter(), 0
        under_way: deque[torch.cuda.Event] = deque()
        while time.time() < end:
            yield next(batches)
            steps += 1
            if torch.cuda.is_available():
                event = torch.cuda.Event(blocking=True)  # frees the core while waiting
                event.record()
                under_way.append(event)
                if len(under_way) > UNDER_WAY:
                    under_way.popleft().synchronize()
        synchronize()
        self._line.tell("ran", steps=steps, seconds=time.perf_counter() - begun)

    def test_batches(self, *_: Any, **__: Any) -> Iterator[Batch]:
        raise NotImplementedError("nothing is evaluated here")


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def memory() -> dict[str, int]:
    """Device memory of this process's tensors, and of all processes together, in bytes."""
    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    return {"reserved_bytes": torch.cuda.memory_reserved(), "used_bytes": total - free}


def base_config(data: str, pool: str, cache_dir: str | None) -> TrainConfig:
    """Configuration shared by all runs; ``data`` is a folder, or glyphs, which are drawn."""
    cuda = torch.cuda.is_available()
    drawn = data == "glyphs"
    config = GLYPHS if drawn else TrainConfig(data=data, fold=1)
    return replace(
        config,
        pool=pool,
        zero_shot=ZeroShotConfig(weight=0.1 if pool == "gsp" else 0.0),
        cache="gpu" if cuda else "ram",
        cache_dir=None if drawn else cache_dir,
        stop=StopConfig(validate_every=10**9, patience=1),
        hardware=HardwareConfig(accelerator="cuda" if cuda else "cpu", workers=1),
    )


def serve(options: dict[str, Any], line: Line) -> None:
    """Execute commands until the line ends."""
    torch.set_num_threads(options["threads"])
    base = base_config(options["data"], options["pool"], options["cache_dir"])
    splits = open_splits(base, progress=False)
    base = resolve(base, splits.name)
    fabric = build_fabric(base)
    view = build_model(base).preprocessing
    feed = build_feed(base, splits.train, view, fabric, progress=False)
    line.tell("loaded", machine=machine(fabric.device), flags=flags())
    while True:
        command = line.ask()
        if command is None:
            return
        if command["do"] == "drop":  # a run that could not be built
            continue
        config = replace(base, hardware=replace(base.hardware, **command["hardware"]))
        try:
            _train(config, feed, options["warmup"], splits.name, line)
        except DroppedError:
            pass
        except Exception as error:  # such as out of memory: the next run may fit
            traceback.print_exc()
            first = (str(error).strip() or "no message").splitlines()[0]
            line.tell("failed", error=f"{type(error).__name__}: {first}")
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _train(config: TrainConfig, feed: ImageFeed, warmup: int, data_set: str, line: Line) -> None:
    fabric = build_fabric(config)
    torch.manual_seed(config.seed)
    paced = PacedFeed(feed, warmup, line)
    model = build_model(config)
    nothing = {"mean_average_precision_at_r": 0.0}
    task = build_task(config, model, paced, lambda _: nothing, fabric, data_set=data_set)
    Trainer(fabric, task, config, progress=False).fit()


def main() -> None:
    # Everything else that is printed goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    line = Line(sys.stdin, answers)
    try:
        serve(json.loads(sys.argv[1]), line)
    except Exception as error:
        traceback.print_exc()
        line.tell("failed", error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
