"""Time and memory of training steps: interleaved rounds, device events, bytes kept for backward."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class Step:
    """Forward and backward pass of a module, with an optimizer step if there is an optimizer.

    The loss is ⟨g, embedding⟩ for a fixed random g, so that gradients flow to the input, the map
    and the prototypes.

    Args:
        module: Module to time.
        inputs: Inputs, which take turns.
        autocast: Dtype of autocast; None disables it.
        optimizer: Creates an optimizer of the parameters.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: list[Tensor],
        autocast: torch.dtype | None = None,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    ) -> None:
        self.module, self.inputs, self.autocast = module, inputs, autocast
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizer = None if optimizer is None else optimizer(self.parameters)
        self.turn = 0
        self._functional: Tensor | None = None

    def __call__(self) -> None:
        """Take one step on the next input."""
        x = self.inputs[self.turn % len(self.inputs)]
        self.turn += 1
        self.clear_gradients(x)
        self.backward(self.forward(x))
        if self.optimizer is not None:
            self.optimizer.step()

    def clear_gradients(self, *inputs: Tensor) -> None:
        """Clear the gradients, so that the next pass writes them instead of adding to them."""
        for leaf in (*self.parameters, *inputs):
            leaf.grad = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding of ``x``."""
        if self.autocast is None:
            out: Tensor = self.module(x)
            return out
        with torch.autocast(x.device.type, dtype=self.autocast):
            out = self.module(x)
        return out

    def backward(self, embedding: Tensor) -> None:
        """Backpropagate from ⟨g, embedding⟩."""
        if self._functional is None:
            generator = torch.Generator().manual_seed(0)
            g = torch.randn(embedding.shape, generator=generator) / math.sqrt(embedding.numel())
            self._functional = g.to(embedding.device, embedding.dtype)
        embedding.backward(self._functional)


@dataclass
class Clock:
    """Timer for repeated calls on one device."""

    #: Device of the calls. On CUDA, times are taken by device events, so that idle gaps between
    #: launches count and the work of earlier calls does not.
    device: torch.device
    rounds: int  #: Turns of each call
    seconds: float  #: Approximate duration of a turn; short calls are repeated within it
    now: Callable[[], float] = time.perf_counter  #: Clock for the CPU, in seconds

    def synchronize(self) -> None:
        """Wait for the device; raise its pending errors."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def milliseconds(self, call: Callable[[], object], repeats: int) -> float:
        """Return the time of one call, averaged over ``repeats`` calls in a row.

        One call before them is not timed, since it finds the caches as another variant left them.
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
        """Estimate how often ``call`` fits into one turn, from one trial."""
        trial = max(self.milliseconds(call, 1), 1e-3)
        return min(200, max(1, int(self.seconds * 1e3 / trial)))


@dataclass
class Rounds:
    """Times of several calls, measured in turns within the same rounds."""

    #: Milliseconds by name, one value per round.
    times: dict[str, list[float]] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)  #: Calls in one turn, by name
    #: Errors by name; a call that fails has no further turns.
    failures: dict[str, BaseException] = field(default_factory=dict)


def time_in_rounds(calls: Mapping[str, Callable[[], object]], clock: Clock) -> Rounds:
    """Time all ``calls``, one turn each per round, every other round in reverse.

    Drift (clocks, other processes) affects all calls alike, so that ratios within a round are more
    reliable than the times themselves.
    """
    result = Rounds()
    for name, call in calls.items():
        try:
            result.repeats[name] = clock.repeats_for(call)
            result.times[name] = []
        except Exception as error:
            result.failures[name] = error
    # As in timeit, no garbage is collected meanwhile: one variant's would count as another's time.
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


def peak_bytes(step: Step) -> int | None:
    """Return the peak device memory of a step, without parameters and inputs; None without CUDA.

    Gradients and library workspaces are included.
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
    """Return the bytes that the forward pass saves for backward, without parameters and inputs.

    This is a count, not a measurement: it is the same on every device and in every run.
    """
    own = {leaf.untyped_storage().data_ptr() for leaf in (*step.parameters, *step.inputs)}
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        # The tensor itself would hold the graph that holds it: a reference cycle.
        return x.detach()

    step.clear_gradients(*step.inputs)
    with saved_tensors_hooks(pack, lambda x: x):
        embedding = step.forward(step.inputs[0])
    step.backward(embedding)
    return sum(kept.values())
