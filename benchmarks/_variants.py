"""The timed poolings, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from sumpool.pooling import GeneralizedSumPool2d, GlobalAveragePool2d, KeyedSumPool2d
from sumpool.transport import Iterative, Solver, TransportProblem, TransportResult
from sumpool.transport.exact import attach_gradient

#: The baseline and its second timing in the same rounds, which shows the spread.
GAP, GAP_AGAIN = "gap", "gap-again"


@dataclass(frozen=True)
class Size:
    """Number of images, channels of the map, height, width, embedding size, prototypes."""

    B: int
    C: int
    h: int
    w: int
    d: int
    m: int

    def __str__(self) -> str:
        return f"B {self.B}, C {self.C}, {self.h}×{self.w}, d {self.d}, m {self.m}"


@dataclass(frozen=True)
class Printed:
    """Proposition 4.1 of [gsp] as printed, differentiated through its iterations.

    ρ = (1/n)/(1 + t exp(−εc)ᵀ1) and t = μ/(1ᵀ exp(−εc) ρ) with both products recomputed in every
    iteration. The package's iteration computes the sums over the prototypes once.
    """

    steps: int

    def __call__(self, problem: TransportProblem) -> TransportResult:
        kernel = problem.scores().exp()  # (..., n, m)
        mass = 1 / problem.cost.shape[-2]
        t = kernel.new_ones(*kernel.shape[:-2], 1)
        for _ in range(self.steps):
            kept = mass / (1 + t * kernel.sum(-1))
            t = problem.share / (kept.unsqueeze(-2) @ kernel).sum(-1)
        return TransportResult((mass - kept) / problem.share, kept, mass - kept, problem)


@dataclass(frozen=True)
class Linear:
    """The iteration of Proposition 4.1 in the linear domain, with the closed-form gradient.

    As in the papers, and cheaper per step than the package's iteration in the log domain, but fails
    if exp(−εc) overflows or underflows.
    """

    steps: int

    def __call__(self, problem: TransportProblem) -> TransportResult:
        log_sums = problem.scores().logsumexp(-1)  # (..., n)
        mass = 1 / problem.cost.shape[-2]
        with torch.no_grad():
            sums = log_sums.exp()
            kept = mass / (1 + sums)
            for _ in range(self.steps - 1):
                t = problem.share / torch.linalg.vecdot(sums, kept).unsqueeze(-1)
                kept = mass / (1 + t * sums)
            log_odds = -(kept / mass).logit()
        log_odds = attach_gradient(log_odds, log_sums, problem)
        sent = log_odds.sigmoid() * mass
        return TransportResult(sent / problem.share, mass - sent, sent, problem)


def variants(
    iterations: tuple[int, ...],
    *,
    cuda: bool,
    compiled: bool,
    linear: bool = True,
    printed: bool = False,
    keys: bool = False,
) -> list[str]:
    """List the names in the order of a round, with the baseline at both ends."""
    names = [GAP]
    for name in ("exact", "keys") if keys else ("exact",):
        names += [name, f"{name}-compiled"] if compiled else [name]
    if cuda:
        names += ["fused", "keys-fused"] if keys else ["fused"]
    names += [f"iterative-{k}" for k in iterations]
    if linear:
        names.append(f"linear-{iterations[-1]}")
    names += [f"autodiff-{k}" for k in iterations]
    if printed:
        names.append(f"printed-{iterations[-1]}")
    return [*names, GAP_AGAIN]


def iterations_of(name: str) -> int | None:
    """Return k of an iterative variant; None for the others."""
    kind, _, steps = name.partition("-")
    return int(steps) if kind in ("iterative", "linear", "autodiff", "printed") else None


def build_pool(name: str, d: int, m: int) -> nn.Module:
    """Build the pooling ``name`` for d channels and m prototypes."""
    if name in (GAP, GAP_AGAIN):
        return GlobalAveragePool2d()
    solver: str | Solver
    fused = False
    steps = iterations_of(name)
    if steps is not None and name.startswith("printed"):
        solver = Printed(steps)
    elif steps is not None and name.startswith("linear"):
        solver = Linear(steps)
    elif steps is not None:
        solver = Iterative(steps=steps, unroll=name.startswith("autodiff"))
    elif name in ("exact", "exact-compiled", "fused"):
        solver, fused = "exact", name == "fused"
    else:
        raise ValueError(f"there is no variant called {name!r}")
    return GeneralizedSumPool2d(d, m, solver=solver, fused=fused, init="random")


def build_head(name: str, size: Size) -> nn.Module:
    """Build the 1×1 map to the embedding size and the pooling; keys are pooled before their map."""
    # The same map for all poolings.
    torch.manual_seed(0)
    if name.startswith("keys"):
        pool = KeyedSumPool2d(size.C, fused=name == "keys-fused")
        return nn.Sequential(pool, nn.Linear(size.C, size.d, bias=False))
    conv = nn.Conv2d(size.C, size.d, 1, bias=False)
    return nn.Sequential(conv, build_pool(name, size.d, size.m))


def maybe_compiled(name: str, module: nn.Module) -> nn.Module:
    """Compile ``module`` for its single shape if the variant asks for it."""
    if not name.endswith("-compiled"):
        return module
    return cast(nn.Module, torch.compile(module, dynamic=False))


def random_maps(
    shape: tuple[int, ...], sets: int, device: torch.device, dtype: torch.dtype, channels_last: bool
) -> list[Tensor]:
    """Draw feature maps that require gradients, like those of a backbone."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    maps = []
    for _ in range(sets):
        x = torch.randn(shape, device=device).to(dtype=dtype, memory_format=layout)
        maps.append(x.requires_grad_())
    return maps
