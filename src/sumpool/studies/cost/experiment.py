"""Cost of the pooling layer: time and memory of a step against iterations [gsp, fig. 7].

    sumpool study cost            (about half a minute; run it on an otherwise idle machine)

Times one layer on one batch of feature maps with three ways to compute the weights: the papers' k
iterations, differentiated through ("autodiff"); the same iterations with the closed-form gradient
("iterative"), which stores none of them; and the exact solver, which has no k ("exact", on CUDA
also its fused kernels, "fused"). All take turns within the same rounds, every other round in
reverse, so that slowdowns of the machine affect all alike; ratios are taken round by round. Maps
have 7×7 features, on CUDA also 16×16.

Expected: time grows with k for both iterative variants, memory only for "autodiff"; "exact" takes
as long as 10 to 30 iterations, and at k = 25 the iterations agree with it to float32 precision on
these maps.
"""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sumpool.pooling import GeneralizedSumPool2d
from sumpool.studies.cost.step_timing import Clock, Step, peak_bytes, saved_bytes, time_in_rounds
from sumpool.studies.shared.seeds import seed_range
from sumpool.system.rows import ResultStore, Row
from sumpool.transport import Iterative, Solver

#: Iterative solvers, and whether autograd differentiates through their iterations.
ITERATED = {"autodiff": True, "iterative": False}


@dataclass(frozen=True)
class CostSettings:
    """Settings of the measurement."""

    device: str  #: Device type
    device_name: str
    threads: int  #: CPU threads that a step may use
    #: Kind of memory measured: "peak", the maximum that a step holds on the device, or "saved",
    #: what its forward pass keeps for the backward pass.
    memory: str
    batch: int = 32  #: Images B
    sides: tuple[int, ...] = (7,)  #: Height and width of the maps; each is measured separately
    channels: int = 128  #: Channels d
    prototypes: int = 64  #: Number m of prototypes, picked from the maps by greedy k-center
    mu: float = 0.3  #: Share μ
    eps: float = 5.0  #: Inverse smoothing ε
    dtype: str = "float32"
    iterations: tuple[int, ...] = (1, 5, 10, 25, 50, 100)  #: Values of k
    rounds: int = 9  #: Turns of each contender
    turn_s: float = 0.05  #: Approximate duration of a turn, in seconds


#: Reduced settings for quick mode.
QUICK: dict[str, Any] = {
    "batch": 2,
    "sides": (4,),
    "channels": 8,
    "prototypes": 4,
    "iterations": (1, 5, 25),
    "rounds": 3,
    "turn_s": 0.001,
}


class Contender(NamedTuple):
    """One way to compute the weights."""

    solver: str  #: "autodiff", "iterative", "exact" or "fused"
    k: int | None = None  #: Iterations; None for solvers without iterations

    def build(self, settings: CostSettings) -> GeneralizedSumPool2d:
        """Build the layer that uses this solver."""
        chosen: str | Solver = "exact"
        if self.k is not None:
            chosen = Iterative(steps=self.k, unroll=ITERATED[self.solver])
        return GeneralizedSumPool2d(
            settings.channels,
            settings.prototypes,
            settings.mu,
            settings.eps,
            solver=chosen,
            fused=self.solver == "fused",
        )


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
) -> list[Row]:
    """Measure the missing cells, on CUDA if available.

    If any cell of a seed and size is missing, all of them are measured. ``seeds`` counts batches of
    maps and defaults to 1. See :class:`~sumpool.studies.shared.study.RunStudy`.
    """
    settings = default_settings(quick)
    store = ResultStore(out_dir, "cost", asdict(settings), force=force)
    groups = [(seed, side) for seed in seed_range(seeds, quick, 1) for side in settings.sides]
    rows = []
    for seed, side in tqdm(groups, desc="cost", unit="size", disable=not progress):
        cells = {it: _cell(it, side, seed) for it in contenders(settings)}
        found = [store.find(cell) for cell in cells.values()]
        if any(row is None for row in found):
            begun = time.perf_counter()
            measured = measure(settings, side, seed)
            share = (time.perf_counter() - begun) / len(cells)
            found = [store.add(cell, measured[it], share) for it, cell in cells.items()]
        rows += [row for row in found if row is not None]
    return rows


def default_settings(quick: bool) -> CostSettings:
    """Return the settings for the available device."""
    less = QUICK if quick else {}
    threads = torch.get_num_threads()
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        return CostSettings("cuda", name, threads, "peak", **{"sides": (7, 16), **less})
    name = f"CPU ({platform.machine()}), {threads} thread{'s' if threads > 1 else ''}"
    return CostSettings("cpu", name, threads, "saved", **less)


def contenders(settings: CostSettings) -> list[Contender]:
    """Return the contenders, in the order of the rows."""
    found = [Contender("exact")]
    if settings.device == "cuda":
        found.append(Contender("fused"))
    return found + [Contender(name, k) for name in ITERATED for k in settings.iterations]


def measure(settings: CostSettings, side: int, seed: int) -> dict[Contender, dict[str, float]]:
    """Measure time and memory of all contenders on the same ``side`` × ``side`` maps.

    Returns:
        The metrics of each: the median ``step_ms`` with quartiles ``step_ms_low`` and
        ``step_ms_high``, ``ratio_to_exact``, ``memory_bytes``, and ``weight_error``, the share
        ½ Σ |p − p*| of misplaced pooling weight, with p* the exact solution in float64, averaged
        over the images.

    Raises:
        Exception: The error of the first contender that failed.
    """
    device = torch.device(settings.device)
    maps = draw_maps(settings, side, seed).to(device).requires_grad_()
    layers = {it: it.build(settings).to(device) for it in contenders(settings)}
    exact = layers[Contender("exact")]
    for layer in layers.values():
        layer.initialize_prototypes(maps.detach())  # the same prototypes in all layers
    steps = {it: Step(layer, [maps]) for it, layer in layers.items()}
    with torch.no_grad():
        wanted = exact.double().pool(maps.double()).weights
        exact.float()
    memory, errors = {}, {}
    for it, step in steps.items():
        step()
        memory[it] = peak_bytes(step) if settings.memory == "peak" else saved_bytes(step)
        with torch.no_grad():
            errors[it] = weight_error(layers[it].pool(maps).weights, wanted)
    names = {str(it): it for it in steps}
    clock = Clock(device, settings.rounds, settings.turn_s)
    timed = time_in_rounds({name: steps[it] for name, it in names.items()}, clock)
    for error in timed.failures.values():
        raise error
    reference = np.array(timed.times[str(Contender("exact"))])
    found = {}
    for name, it in names.items():
        times = np.array(timed.times[name])
        low, middle, high = np.percentile(times, (25, 50, 75)).tolist()
        weighed = memory[it]
        assert weighed is not None
        found[it] = {
            "step_ms": middle,
            "step_ms_low": low,
            "step_ms_high": high,
            "ratio_to_exact": float(np.median(times / reference)),
            "memory_bytes": weighed,
            "weight_error": errors[it],
        }
    return found


def draw_maps(settings: CostSettings, side: int, seed: int) -> Tensor:
    """Draw random maps (B, d, side, side), the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    shape = (settings.batch, settings.channels, side, side)
    dtype: torch.dtype = getattr(torch, settings.dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def weight_error(weights: Tensor | None, wanted: Tensor | None) -> float:
    """Return the share of misplaced weight, ½ Σ |p − p*|, averaged over images (B, h, w).

    Example:
        >>> weight_error(torch.tensor([[[0.5, 0.5]]]), torch.tensor([[[0.75, 0.25]]]))
        0.25
    """
    assert weights is not None
    assert wanted is not None
    return float((weights.double() - wanted.double()).abs().flatten(1).sum(1).mean() / 2)


def _cell(contender: Contender, side: int, seed: int) -> dict[str, Any]:
    return {**contender._asdict(), "size": f"{side}×{side}", "seed": seed}
