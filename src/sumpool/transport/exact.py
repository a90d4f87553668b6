"""The exact solution of P2: one scalar equation per image (docs/derivation.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.transport.problem import TransportProblem, TransportResult
from sumpool.transport.validation import LEAST_SHARE, check_at_least_one


@dataclass(frozen=True)
class Exact:
    """Bracketed Newton in the log domain, started from the solution of P1.

    Attributes:
        steps: Maximum number of Newton steps, independent of the data so that the solver compiles
            and exports; ten reach machine precision from the starting point used here for every
            μ, ε and cost tested (tests/transport/test_extremes.py).
    """

    steps: int = 10

    def __post_init__(self) -> None:
        check_at_least_one(steps=self.steps)

    def __call__(self, problem: TransportProblem) -> TransportResult:
        """Solve ``problem``."""
        log_sums = problem.scores().logsumexp(-1)  # ℓ, (..., n)
        with torch.no_grad():
            log_odds = solve_log_odds(problem, log_sums.detach(), self.steps)
        return result_from_log_odds(problem, attach_gradient(log_odds, log_sums, problem))


def result_from_log_odds(problem: TransportProblem, log_odds: Tensor) -> TransportResult:
    """Build the result from the log-odds x_j = τ + ℓ_j: p = σ(x)/(nμ), ρ = σ(−x)/n."""
    # The smaller of σ(x) and σ(−x): the derivative y (1 − y) of the larger vanishes where y rounds
    # to 1.
    more = log_odds > 0
    smaller = torch.where(more, -log_odds, log_odds).sigmoid()
    sent = torch.where(more, 1 - smaller, smaller)
    kept = torch.where(more, smaller, 1 - smaller)
    sent = problem.fill_invalid(sent, 0.0) / problem.count
    kept = problem.fill_invalid(kept, 0.0) / problem.count
    return TransportResult(sent / problem.share, kept, sent, problem)


def solve_log_odds(problem: TransportProblem, log_sums: Tensor, steps: int) -> Tensor:
    """x = τ + ℓ for the root τ of mean_j σ(τ + ℓ_j) = μ, of shape (..., n); no gradient.

    For μ > 1/2 the mirrored problem (−ℓ, 1 − μ) is solved, whose target is at most 1/2, so that
    small shares keep their relative precision. With features sorted by u = ±ℓ, P1 takes the first k
    in full and a part |δ| ≤ 1/2 more of the next one, or less of the last one: nμ = k + δ. The mass
    that the others give must equal the mass that the first k hold back, up to δ = δ⁺ − δ⁻,

        Σ_{j>k} σ(x_j) + δ⁻ = Σ_{j≤k} σ(−x_j) + δ⁺,

    an equation without cancellation even where all features are saturated and Σσ is flat.
    """
    target, sign = _smaller_share(problem)
    u = problem.fill_invalid(sign * log_sums, -math.inf)
    order = u.sort(-1, descending=True).values
    k, over, under = _split_target(problem, u, target)
    level, tau = _hard_start(order, k, over, under)
    # Relative to the feature at which P1 stops: log-odds near it lose no digits to a large ε.
    u, order = u - level, order - level
    goal = logit(target)
    low = goal - u.amax(-1, keepdim=True)
    high = goal - problem.fill_invalid(u, math.inf).amin(-1, keepdim=True)
    tau = tau.clamp(low, high)
    taken = torch.arange(u.shape[-1], device=u.device) < k
    side = torch.where(taken, -1.0, 1.0).to(u.dtype)
    order = order * side
    sides = torch.stack((~taken, taken), -1).to(u.dtype)  # (..., n, 2)
    parts = torch.cat((under, over), -1)  # (..., 2)
    for _ in range(steps):
        # Newton on the difference of the logarithms of the two sides: each is linear in τ where
        # the features are saturated, so that tails and plateaus take one step.
        off = torch.addcmul(order, side, tau).sigmoid()  # distance to P1's 0 or 1
        sums = torch.stack((off, off - off.square()), -2) @ sides  # (..., 2, 2)
        totals = sums[..., 0, :] + parts  # given by the others, held back by the first k
        missing = (totals[..., 1:] / totals[..., :1]).log()
        rate = (sums[..., 1, :] / totals).sum(-1, keepdim=True)
        # The slope is at most 2, so the root is at least |missing|/2 away.
        bound = tau + missing / 2
        short = missing > 0
        low = torch.where(short, torch.maximum(low, bound), low)
        high = torch.where(short, high, torch.minimum(high, bound))
        newton = tau + missing / rate.clamp_min(1e-3)
        inside = (newton >= low) & (newton <= high)  # False for NaN
        tau = torch.where(inside, newton, (low + high) / 2)
        if _may_stop(missing):
            break
    return sign * (tau + u)


def _may_stop(missing: Tensor) -> bool:
    """Whether the last step suffices, where checking is free.

    Newton's error squares: from √ulp, one step is enough. All steps are taken in compiled and
    captured code, under transforms such as vmap, and on devices that a check would synchronize.
    """
    if missing.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return bool((missing.abs() <= 0.5 * torch.finfo(missing.dtype).eps ** 0.5).all())


def _smaller_share(problem: TransportProblem) -> tuple[float | Tensor, float | Tensor]:
    """min(μ, 1 − μ), bounded away from 0, and the sign, −1 where the problem is mirrored."""
    mu, rest = problem.share, problem.complement
    if isinstance(mu, Tensor):
        assert isinstance(rest, Tensor)
        return torch.minimum(mu, rest).clamp_min(LEAST_SHARE), torch.where(mu > rest, -1.0, 1.0)
    assert not isinstance(rest, Tensor)
    return max(min(mu, rest), LEAST_SHARE), -1.0 if mu > rest else 1.0


def logit(share: float | Tensor) -> float | Tensor:
    """Log-odds of ``share``."""
    if isinstance(share, Tensor):
        return share.log() - (-share).log1p()
    return math.log(share) - math.log1p(-share)


def _split_target(
    problem: TransportProblem, u: Tensor, target: float | Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """k, δ⁺ > 0 and δ⁻ > 0 of n·target = k + δ with |δ| ≤ 1/2, each (..., 1)."""
    wanted = problem.count * target
    if isinstance(wanted, Tensor):
        wanted = wanted.to(u.dtype)
        if wanted.ndim == 0:
            wanted = wanted.unsqueeze(0)
    else:
        wanted = u.new_full((1,), wanted)
    wanted = wanted.expand(*u.shape[:-1], 1)
    part = wanted - wanted.round()
    k = wanted.round().long().clamp(0, u.shape[-1] - 1)
    tiny = torch.finfo(u.dtype).tiny
    return k, part.clamp_min(tiny), (-part).clamp_min(tiny)


def _hard_start(order: Tensor, k: Tensor, over: Tensor, under: Tensor) -> tuple[Tensor, Tensor]:
    """Level at which P1 stops and initial τ relative to it, both (..., 1).

    For features far apart, the root has σ = δ at the feature that is taken in part or, for a small
    δ, lies midway between the last feature taken and the first one left.
    """
    left = order.gather(-1, k)
    last = torch.where(k > 0, order.gather(-1, (k - 1).clamp_min(0)), math.inf)
    less = under > over  # the last one is taken in part
    level = torch.where(less, last, left)
    midway = (level - last) / 2 + (level - left) / 2
    part = torch.maximum(over, under)
    odds = part.log() - (-part).log1p()
    return level, torch.where(less, torch.minimum(midway, -odds), torch.maximum(midway, odds))


def attach_gradient(log_odds: Tensor, log_sums: Tensor, problem: TransportProblem) -> Tensor:
    """Attach to ``log_odds`` the gradient of the exact root in ℓ and μ.

    It holds to any order; where μ is a tensor and 1, to the first.
    """
    share = problem.share if isinstance(problem.share, Tensor) else None
    averages = share is None and problem.share == 1
    x: Tensor = _LogOdds.apply(log_sums, share, log_odds, problem.mask, problem.count, averages)
    return x


class _LogOdds(torch.autograd.Function):
    """x_j = ℓ_j + τ(ℓ, μ), differentiated through the equation that defines τ.

    dτ = (n dμ − Σ w_j dℓ_j)/Σ w_j with w = σ(1 − σ). The averaging weights w/Σw are computed as the
    softmax of log w, which is correct even if every w underflows. The backward pass depends on the
    output alone and is itself differentiable.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_sums: Tensor,
        share: Tensor | None,
        log_odds: Tensor,
        mask: Tensor | None,
        count: int | Tensor,
        averages: bool,
    ) -> Tensor:
        return log_odds.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, share, _, mask, count, ctx.averages = inputs
        ctx.save_for_backward(output, share, mask, count if isinstance(count, Tensor) else None)
        ctx.count = None if isinstance(count, Tensor) else count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, share, mask, count = ctx.saved_tensors
        size = x.abs()
        log_slope = -size - 2 * F.softplus(-size)  # log w
        if mask is not None:
            log_slope = torch.where(mask, log_slope, -math.inf)
        total = grad.sum(-1, keepdim=True)
        grad_sums = grad - log_slope.softmax(-1) * total
        # Average pooling does not depend on ℓ.
        if ctx.averages:
            grad_sums = torch.zeros_like(grad_sums)
        elif share is not None:
            grad_sums = torch.where(share < 1, grad_sums, 0)
        grad_share = None
        if share is not None and ctx.needs_input_grad[1]:
            # Bounded below: where all features are saturated, dτ/dμ would overflow.
            log_total = log_slope.logsumexp(-1, keepdim=True).clamp_min(-80.0)
            rate = (ctx.count if count is None else count) * (-log_total).exp()
            grad_share = (total * rate).sum_to_size(share.shape)
        return grad_sums, grad_share, None, None, None, None
