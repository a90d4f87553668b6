"""Fixed-point iteration of the papers for P2, for reference and for the cost study."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.transport.exact import attach_gradient
from sumpool.transport.problem import TransportProblem, TransportResult
from sumpool.transport.validation import check_at_least_one


@dataclass(frozen=True)
class Iterative:
    """Proposition 4.1 of [gsp]: ρ = (1/n)/(1 + t s), t = μ/Σ s ρ, from t = 1, ``steps`` times.

    It approaches the exact solution from outside the constraints: see
    :meth:`TransportResult.errors`. Iterations are in the log domain, which is equivalent but works
    for any ε in float32.

    Attributes:
        steps: Number k of iterations; the papers use 100.
        unroll: Differentiate through the iterations instead of using the closed form, which
            assumes that they have converged (Proposition 4.2).
    """

    steps: int = 100
    unroll: bool = False

    def __post_init__(self) -> None:
        check_at_least_one(steps=self.steps)

    def __call__(self, problem: TransportProblem) -> TransportResult:
        """Iterate on ``problem``."""
        log_sums = problem.fill_invalid(problem.scores().logsumexp(-1), -math.inf)  # (..., n)
        if self.unroll:
            log_odds = self._iterate(problem, log_sums)
        else:
            with torch.no_grad():
                log_odds = self._iterate(problem, log_sums)
            log_odds = attach_gradient(log_odds, log_sums, problem)
        # The last half step scales π = t s ρ to the mass μ.
        sent = problem.share * (log_sums + F.logsigmoid(-log_odds)).softmax(-1)
        taken = problem.fill_invalid(log_odds.sigmoid(), 0.0) / problem.count
        kept = problem.fill_invalid((-log_odds).sigmoid(), 0.0) / problem.count
        return TransportResult(taken / problem.share, kept, sent, problem)

    def _iterate(self, problem: TransportProblem, log_sums: Tensor) -> Tensor:
        """log(t s) after the last full step; n ρ = σ(−log(t s))."""
        wanted = problem.count * problem.share
        log_wanted = wanted.log() if isinstance(wanted, Tensor) else math.log(wanted)
        log_odds = log_sums
        for _ in range(self.steps - 1):
            flow = (log_sums + F.logsigmoid(-log_odds)).logsumexp(-1, keepdim=True)  # log n Σ s ρ
            log_odds = log_sums + (log_wanted - flow)
        return log_odds
