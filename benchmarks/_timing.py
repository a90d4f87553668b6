"""How things are timed: interleaved rounds, device events, graph replays, memory."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from _variants import Step
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


@dataclass
class Clock:
    """Times calls on one device and repeats them in rounds.

    Attributes:
        device: Where the calls run. On CUDA device events are read, so that idle gaps between
            launches count and the work of earlier calls does not.
        rounds: How often each call has its turn.
        seconds: About how long one turn lasts: short calls are repeated within it.
        now: The clock read on the CPU, in seconds.
    """

    device: torch.device
    rounds: int
    seconds: float
    now: Callable[[], float] = time.perf_counter

    def synchronize(self) -> None:
        """Wait for the device; raises what went wrong on it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def milliseconds(self, call: Callable[[], object], repeats: int) -> float:
        """Time of one call, the mean over ``repeats`` in a row.

        One call before them is not timed: it finds the caches as another variant left them.
        """
        call()
        if self.device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize(self.device)
            start.record()
            for _ in range(repeats):
                call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / repeats
        begun = self.now()
        for _ in range(repeats):
            call()
        return (self.now() - begun) * 1e3 / repeats

    def repeats_for(self, call: Callable[[], object]) -> int:
        """How often ``call`` fits into one turn, from one trial."""
        trial = max(self.milliseconds(call, 1), 1e-3)
        return min(200, max(1, int(self.seconds * 1e3 / trial)))


@dataclass
class Rounds:
    """Times of several calls, measured in turns within the same rounds.

    Attributes:
        times: Milliseconds by name, one number a round.
        repeats: Calls in one turn, by name.
        failures: What was raised, by name; a call that fails has no further turns.
    """

    times: dict[str, list[float]] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)


def time_in_rounds(calls: Mapping[str, Callable[[], object]], clock: Clock) -> Rounds:
    """Time all ``calls``, one turn each a round, every other round in reverse.

    What drifts (clocks, other processes) meets all calls alike, so that ratios within a round are
    more certain than the times themselves.
    """
    result = Rounds()
    for name, call in calls.items():
        try:
            result.repeats[name] = clock.repeats_for(call)
            result.times[name] = []
        except Exception as error:
            result.failures[name] = error
    # As in timeit: no garbage is collected meanwhile, least of all one variant's on another's time.
    gc.collect()
    gc.disable()
    try:
        for i in range(clock.rounds):
            names = [name for name in calls if name not in result.failures]
            for name in reversed(names) if i % 2 else names:
                try:
                    elapsed = clock.milliseconds(calls[name], result.repeats[name])
                    result.times[name].append(elapsed)
                except Exception as error:
                    result.failures[name] = error
                    del result.times[name]
    finally:
        gc.enable()
    return result


def summary(times: list[float], baseline: list[float] | None, repeats: int) -> dict[str, Any]:
    """Median and quartiles of ``times``, and of their ratio to ``baseline`` round by round."""
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
    """A CUDA graph of one ``step`` on each input set in turn; calling it replays the graph.

    The pass before capture runs on a side stream, as capture asks. Gradients are forgotten inside
    the captured step, so that a replay writes them to memory of the graph and adds nothing.
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


def peak_bytes(step: Step) -> int | None:
    """Most device memory one step holds above parameters and inputs; None off CUDA.

    Gradients and the libraries' workspaces are part of it.
    """
    if step.inputs[0].device.type != "cuda":
        return None
    step.clear_gradients(*step.inputs)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def saved_bytes(step: Step) -> int:
    """Bytes that the forward pass keeps for the backward one, parameters and inputs aside.

    A count, not a measurement: it is the same on every device and in every run.
    """
    own = {leaf.untyped_storage().data_ptr() for leaf in (*step.parameters, *step.inputs)}
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        # The tensor itself would hold the graph that holds it.
        return x.detach()

    step.clear_gradients(*step.inputs)
    with saved_tensors_hooks(pack, lambda x: x):
        embedding = step.forward(step.inputs[0])
    step.backward(embedding)
    return sum(kept.values())


def release(device: torch.device) -> None:
    """Give back what a group of measurements held."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
