"""Time and memory of training steps: interleaved rounds, device events, bytes kept for backward."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class Step:
    """Forward and backward of a module on one input.

    The loss is ⟨g, embedding⟩ for a fixed random g, so that every gradient flows: to the input,
    to the map and to the prototypes.
    """

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        self.module, self.x = module, x
        self.leaves = [*(p for p in module.parameters() if p.requires_grad), x]
        self._functional: Tensor | None = None

    def __call__(self) -> None:
        """One step."""
        self.clear_gradients()
        self.backward(self.forward())

    def clear_gradients(self) -> None:
        """Forget the gradients, so that the next pass writes them instead of adding to them."""
        for leaf in self.leaves:
            leaf.grad = None

    def forward(self) -> Tensor:
        """The embedding."""
        out: Tensor = self.module(self.x)
        return out

    def backward(self, embedding: Tensor) -> None:
        """Backward from ⟨g, embedding⟩."""
        if self._functional is None:
            generator = torch.Generator().manual_seed(0)
            g = torch.randn(embedding.shape, generator=generator) / math.sqrt(embedding.numel())
            self._functional = g.to(embedding.device, embedding.dtype)
        embedding.backward(self._functional)


@dataclass
class Clock:
    """Times calls on one device and repeats them in rounds."""

    #: Where the calls run. On CUDA device events are read, so that idle gaps between launches count
    #: and the work of earlier calls does not.
    device: torch.device
    rounds: int  #: How often each call has its turn
    seconds: float  #: About how long one turn lasts: short calls are repeated within it

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
        begun = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - begun) * 1e3 / repeats

    def repeats_for(self, call: Callable[[], object]) -> int:
        """How often ``call`` fits into one turn, from one trial."""
        trial = max(self.milliseconds(call, 1), 1e-3)
        return min(200, max(1, int(self.seconds * 1e3 / trial)))


def time_in_rounds(
    calls: Mapping[str, Callable[[], object]], clock: Clock
) -> dict[str, list[float]]:
    """Milliseconds of all ``calls`` by name, one turn each per round, every other in reverse.

    What drifts (clocks, other processes) meets all calls alike, so that ratios within a round are
    more certain than the times themselves.
    """
    repeats = {name: clock.repeats_for(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    # As in timeit: no garbage is collected meanwhile, least of all one variant's on another's time.
    gc.collect()
    gc.disable()
    try:
        for i in range(clock.rounds):
            for name in reversed(list(calls)) if i % 2 else calls:
                times[name].append(clock.milliseconds(calls[name], repeats[name]))
    finally:
        gc.enable()
    return times


def peak_bytes(step: Step) -> int:
    """Most memory of a CUDA device that one step holds above parameters and input.

    Gradients and the libraries' workspaces are part of it.
    """
    step.clear_gradients()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def saved_bytes(step: Step) -> int:
    """Bytes that the forward pass keeps for the backward one, parameters and input aside.

    A count, not a measurement: it is the same on every device and in every run.
    """
    own = {leaf.untyped_storage().data_ptr() for leaf in step.leaves}
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        # The tensor itself would hold the graph that holds it.
        return x.detach()

    step.clear_gradients()
    with saved_tensors_hooks(pack, lambda x: x):
        embedding = step.forward()
    step.backward(embedding)
    return sum(kept.values())
