"""Solver for P1, the problem without smoothing, by sorting."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sumpool.transport.problem import TransportProblem, TransportResult


@dataclass(frozen=True)
class Hard:
    """The limit ε → ∞: take the nearest features until the mass μ is reached, the last in part.

    Each feature is sent in full to its nearest prototype; ties go to the first. The weights are
    piecewise constant, so no gradient reaches the costs.
    """

    def __call__(self, problem: TransportProblem) -> TransportResult:
        """Solve ``problem``; its ``eps`` is ignored."""
        cost = problem.cost.detach()
        nearest = problem.fill_invalid(cost.amin(-1), math.inf)  # (..., n)
        rank = nearest.argsort(dim=-1, stable=True).argsort(dim=-1).to(cost.dtype)
        # In units of 1/n: the feature of rank r gives the wanted mass beyond r, at most 1.
        wanted = problem.count * problem.share
        taken = problem.fill_invalid((wanted - rank).clamp(0, 1), 0.0)
        whole = problem.fill_invalid(torch.ones_like(taken), 0.0)
        return TransportResult(
            weights=taken / wanted,
            residual=(whole - taken) / problem.count,
            transported=taken / problem.count,
            problem=problem,
            nearest_only=True,
        )
