"""Timing beyond the package's own clock, above all of graph replays."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sumpool.studies.cost.step_timing import (
    Clock,
    Step,
    peak_bytes,
    saved_bytes,
    time_in_rounds,
)

__all__ = [
    "Clock",
    "capture",
    "peak_bytes",
    "release",
    "saved_bytes",
    "summary",
    "time_in_rounds",
]


def summary(times: list[float], baseline: list[float] | None, repeats: int) -> dict[str, Any]:
    """Compute median and quartiles of ``times``, and of their ratio to ``baseline`` per round."""
    low, mid, high = np.percentile(times, (25, 50, 75)).tolist()
    out: dict[str, Any] = {
        "median_ms": mid,
        "quartiles_ms": [low, high],
        "rounds_ms": times,
        "calls_a_round": repeats,
        "ratio_to_gap": None,
        "ratio_quartiles": None,
    }
    if baseline is not None:
        ratios = np.asarray(times) / np.asarray(baseline)
        low, mid, high = np.percentile(ratios, (25, 50, 75)).tolist()
        out |= {"ratio_to_gap": mid, "ratio_quartiles": [low, high]}
    return out


def capture(step: Step) -> Callable[[], None]:
    """Capture one ``step`` on each input set as a CUDA graph, and return its replay.

    The pass before capture runs on a side stream, as capture requires. Gradients are cleared inside
    the captured step, so that a replay writes them to memory of the graph without accumulating.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    step.clear_gradients(*step.inputs)
    graph = torch.cuda.CUDAGraph()
    step.turn = 0
    with torch.cuda.graph(graph):
        for _ in step.inputs:
            step()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def release(device: torch.device) -> None:
    """Free the memory held by a group of measurements."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
