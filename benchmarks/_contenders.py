"""The compared libraries, each run in its own process.

    python benchmarks/_contenders.py '{"contender": "sumpool", "set": "cub", ...}'

prints one JSON object. Separate processes make it possible to measure peak resident memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _retrieval_sets import SETS, draw
from torch import Tensor

#: The metrics that all of them compute.
NAMES = ("precision_at_1", "r_precision", "mean_average_precision_at_r")

Answer = dict[str, float]
#: From embeddings and labels to an answer; the list receives the seconds of neighbor searches.
Measure = Callable[[Tensor, Tensor, list[float]], Answer]


class NoRoomError(RuntimeError):
    """A contender would exhaust the memory of the machine."""


def sumpool(backend: str) -> Measure:
    """Metrics of this package."""
    from sumpool.evaluation import metrics

    search = metrics.nearest

    def measure(vectors: Tensor, labels: Tensor, searching: list[float]) -> Answer:
        def timed(*arguments: Any) -> Tensor:
            begun = time.perf_counter()
            found = search(*arguments)
            synchronize(found.device)
            searching.append(time.perf_counter() - begun)
            return found

        metrics.nearest = timed
        try:
            out = metrics.retrieval_metrics(vectors, labels, backend=backend)
        finally:
            metrics.nearest = search
        return {name: out[name] for name in NAMES}

    return measure


def pytorch_metric_learning(threads: int) -> Measure:
    """The calculator of the library with its default search, faiss."""
    import faiss
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import FaissKNN

    faiss.omp_set_num_threads(threads)
    search = FaissKNN()

    def measure(vectors: Tensor, labels: Tensor, searching: list[float]) -> Answer:
        def timed(*arguments: Any) -> Any:
            begun = time.perf_counter()
            out = search(*arguments)
            searching.append(time.perf_counter() - begun)
            return out

        calculator = AccuracyCalculator(
            include=NAMES, k="max_bin_count", device=vectors.device, knn_func=timed
        )
        out = calculator.get_accuracy(vectors, labels)
        return {name: float(out[name]) for name in NAMES}

    return measure


def open_metric_learning(rows: int | None) -> Measure:
    """Retrieval functions of the library, on the whole matrix or on ``rows`` rows at a time.

    The library has neither R-precision nor MAP@R. They follow from its results for each query:
    precision@R, whose denominator is min(R, matches) = R, and map@R, which divides by the hits
    among the first R and is therefore MAP@R over R-precision. It computes them for all R that
    occur.
    """
    import numpy as np

    missing = not hasattr(np, "float_")
    if missing:  # removed in NumPy 2, but used when the library is imported
        setattr(np, "float_", np.float64)  # noqa: B010
    try:
        from oml.functional.metrics import (
            calc_distance_matrix,
            calc_gt_mask,
            calc_retrieval_metrics,
        )
        from oml.functional.metrics import calc_mask_to_ignore as calc_ignored
        from oml.utils.misc_torch import pairwise_dist
    finally:
        if missing:
            delattr(np, "float_")

    def measure(vectors: Tensor, labels: Tensor, searching: list[float]) -> Answer:
        count = len(labels)
        matches = torch.bincount(labels)[labels] - 1
        depths = tuple(matches.unique().tolist())
        sums = torch.zeros(3, dtype=torch.float64)
        for start in range(0, count, rows or count):
            part = slice(start, start + (rows or count))
            if rows is None:
                ones = torch.ones(count, dtype=torch.bool)
                distances = calc_distance_matrix(vectors, ones, ones)
                right, ignored = calc_gt_mask(labels, ones, ones), calc_ignored(ones, ones)
            else:
                ids = torch.arange(count)
                distances = pairwise_dist(vectors[part], vectors)
                right = labels[part, None] == labels
                ignored = ids[part, None] == ids
            out = calc_retrieval_metrics(
                distances, right, ignored, (1,), depths, depths, (), reduce=False
            )
            place = torch.searchsorted(torch.tensor(depths), matches[part])[:, None]
            picked = {
                name: torch.stack([out[name][r] for r in depths], 1).gather(1, place)[:, 0].double()
                for name in ("precision", "map")
            }
            sums[0] += out["cmc"][1].double().sum()
            sums[1] += picked["precision"].sum()
            sums[2] += (picked["map"] * picked["precision"]).sum()
        return dict(zip(NAMES, (sums / count).tolist(), strict=True))

    return measure


#: Builders by name, which take the number of threads.
CONTENDERS: dict[str, Callable[[int], Measure]] = {
    "sumpool": lambda threads: sumpool("torch"),
    "sumpool-faiss": lambda threads: sumpool("faiss"),
    "pytorch-metric-learning": pytorch_metric_learning,
    "open-metric-learning": lambda threads: open_metric_learning(None),
    "open-metric-learning-rows": lambda threads: open_metric_learning(500),
}


def check_room(contender: str, items: int, matches: int) -> None:
    """Raise :class:`NoRoomError` if a contender would exhaust the memory of the machine."""
    needed = {
        # Distances and two masks.
        "open-metric-learning": items**2 * (4 + 1 + 1),
        # Neighbors: distances, indices, labels and intermediate results, about 8 numbers each.
        "pytorch-metric-learning": items * matches * 8 * 8,
    }.get(contender, 0)
    free = available_bytes()
    if needed > 0.9 * free:
        raise NoRoomError(f"needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free")


def run(
    contender: str, set: str, dimensions: int, threads: int, repeats: int, device: str
) -> dict[str, Any]:
    """Time a contender ``repeats`` times; return seconds, peak memory and the answer."""
    torch.set_num_threads(threads)
    try:
        measure = CONTENDERS[contender](threads)
    except ImportError as error:
        return {"skipped": f"not installed: {error}; install sumpool[bench]"}
    try:
        check_room(contender, SETS[set].items, SETS[set].largest)
    except NoRoomError as error:
        return {"skipped": str(error)}
    place = torch.device(device)
    # Loading and tuning at the first call are not timed.
    small, few = draw(SETS["tiny"], dimensions)
    measure(small.to(place), few.to(place), [])
    vectors, labels = (x.to(place) for x in draw(SETS[set], dimensions))
    before = resident_bytes("VmRSS")
    seconds, searching = [], []
    for _ in range(repeats):
        spent: list[float] = []
        synchronize(place)
        begun = time.perf_counter()
        answer = measure(vectors, labels, spent)
        synchronize(place)
        seconds.append(time.perf_counter() - begun)
        searching.append(sum(spent) if spent else None)
    return {
        "seconds": seconds,
        "search_seconds": searching,
        "resident_before": before,
        # The kernel counts both per thread and sums late, so the peak may lag behind.
        "peak_resident": max(before, resident_bytes("VmHWM")),
        "peak_device": torch.cuda.max_memory_allocated() if place.type == "cuda" else None,
        "answer": answer,
    }


def resident_bytes(what: str) -> int:
    """VmRSS (current) or VmHWM (peak) of this process."""
    return _kilobytes(Path("/proc/self/status"), what) * 1024


def available_bytes() -> int:
    """Memory available without swapping."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable") * 1024


def _kilobytes(path: Path, name: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
