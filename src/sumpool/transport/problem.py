"""The transport problem and its result, the input and output of a solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.transport.validation import (
    broadcasts_to,
    check_eps,
    check_floating,
    check_mask,
    check_mu,
    solve_dtype,
)


@dataclass(frozen=True)
class TransportProblem:
    r"""Send the share μ of the mass of n features to m prototypes at minimal (smoothed) cost.

    Each feature has mass 1/n. P1 minimizes Σ c_ji π_ji subject to ρ_j + Σ_i π_ji = 1/n, Σ π = μ and
    π, ρ ≥ 0; P2 adds (1/ε)(Σ π log π + Σ ρ log ρ) [gsp, P1 and P2].

    Attributes:
        cost: Costs c of shape (..., n, m), n features by m prototypes. Half-precision costs are
            solved in float32.
        mu: Transported share μ in (0, 1]; a number, or a tensor of shape () or (...).
        eps: Inverse smoothing ε > 0, large = sharp; a number, or a tensor of shape () or (...).
        mask: True for valid features, broadcastable to (..., n); None if all are valid. Invalid
            features hold no mass and n counts only valid ones.
    """

    cost: Tensor
    mu: float | Tensor
    eps: float | Tensor
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        check_floating("cost", self.cost)
        if self.cost.ndim < 2 or self.cost.shape[-1] < 1 or self.cost.shape[-2] < 1:
            raise ValueError(
                "cost must have shape (..., n, m) with n >= 1 features and m >= 1 prototypes, "
                f"got {tuple(self.cost.shape)}"
            )
        check_mu(self.mu)
        check_eps(self.eps)
        for name, value in (("mu", self.mu), ("eps", self.eps)):
            if isinstance(value, Tensor) and value.ndim:
                batch = self.cost.shape[:-2]
                if not broadcasts_to(value.shape, batch):
                    raise ValueError(
                        f"{name} must be a scalar or broadcast to the batch shape {tuple(batch)}, "
                        f"got shape {tuple(value.shape)}"
                    )
        if self.mask is not None:
            check_mask(self.mask, tuple(self.cost.shape[:-1]))
        object.__setattr__(self, "cost", self.cost.to(solve_dtype(self.cost)))

    @property
    def share(self) -> float | Tensor:
        """μ, shaped to broadcast against (..., n)."""
        return _over_features(self.mu, self.cost.dtype)

    @property
    def complement(self) -> float | Tensor:
        """1 − μ, shaped like :attr:`share`."""
        mu = self.mu
        if isinstance(mu, Tensor):
            mu = mu.to(torch.promote_types(mu.dtype, self.cost.dtype))
        return _over_features(1 - mu, self.cost.dtype)

    @property
    def count(self) -> int | Tensor:
        """Number n of valid features, shaped to broadcast against (..., n)."""
        if self.mask is None:
            return self.cost.shape[-2]
        count = self.mask.expand(self.cost.shape[:-1]).sum(-1, keepdim=True)
        return count.to(self.cost.dtype)

    def scores(self) -> Tensor:
        """Return the exponents −ε c of shape (..., n, m)."""
        eps = _over_features(self.eps, self.cost.dtype)
        if isinstance(eps, Tensor) and eps.ndim:
            eps = eps.unsqueeze(-1)
        return self.cost * -eps

    def fill_invalid(self, x: Tensor, value: float) -> Tensor:
        """Return ``x`` of shape (..., n) with ``value`` at invalid features."""
        return x if self.mask is None else torch.where(self.mask, x, value)


def _over_features(value: float | Tensor, dtype: torch.dtype) -> float | Tensor:
    if not isinstance(value, Tensor):
        return value
    value = value.to(dtype)
    return value.unsqueeze(-1) if value.ndim else value


class ConstraintErrors(NamedTuple):
    """Violation of each constraint by a result, per image, relative to the constraint's target.

    Attributes:
        mass: |Σ π − μ| / μ.
        marginal: max_j n |ρ_j + Σ_i π_ji − 1/n|.
        weights: |Σ p − 1|.
    """

    mass: Tensor
    marginal: Tensor
    weights: Tensor


@dataclass(frozen=True)
class TransportResult:
    """A solution, exact or approximate: see :meth:`errors`.

    Attributes:
        weights: Pooling weights p = (1/n − ρ)/μ of shape (..., n); 0 at invalid features.
        residual: Mass ρ that stays, of shape (..., n).
        transported: Mass Σ_i π_ji that leaves each feature, of shape (..., n).
        problem: The problem that was solved.
        nearest_only: Whether each feature sends all its mass to its nearest prototype (P1).
    """

    weights: Tensor
    residual: Tensor
    transported: Tensor
    problem: TransportProblem
    nearest_only: bool = False

    @property
    def attributes(self) -> Tensor:
        """Pseudo-attributes z_i = (1/μ) Σ_j π_ji of shape (..., m); computed on access."""
        arriving = (self.transported / self.problem.share).unsqueeze(-2)  # (..., 1, n)
        with torch.autocast(arriving.device.type, enabled=False):
            return (arriving @ self.assignment()).squeeze(-2)

    @property
    def background_weights(self) -> Tensor:
        """Weights with reversed roles, ρ/(1 − μ): the prototypes describe the background."""
        check_mu(self.problem.mu, below_one=True)
        return self.residual / self.problem.complement

    def plan(self) -> Tensor:
        """Build the plan π of shape (..., n, m)."""
        return self.transported.unsqueeze(-1) * self.assignment()

    def pooled_plan(self) -> Tensor:
        """Share of the pooled mass that each feature sends to each prototype, π/μ, (..., n, m)."""
        return (self.transported / self.problem.share).unsqueeze(-1) * self.assignment()

    def errors(self) -> ConstraintErrors:
        """Return the violation of each constraint, per image."""
        problem = self.problem
        share = torch.as_tensor(problem.mu, dtype=self.weights.dtype, device=self.weights.device)
        whole = problem.count * (self.residual + self.transported)  # 1 for each feature, (..., n)
        return ConstraintErrors(
            mass=(self.transported.sum(-1) - share).abs() / share,
            marginal=problem.fill_invalid(whole - 1, 0.0).abs().amax(-1),
            weights=(self.weights.sum(-1) - 1).abs(),
        )

    def assignment(self) -> Tensor:
        """Split of the mass each feature sends over the prototypes, (..., n, m)."""
        if self.nearest_only:
            nearest = self.problem.cost.argmin(-1, keepdim=True)
            return torch.zeros_like(self.problem.cost).scatter(-1, nearest, 1.0)
        return self.problem.scores().softmax(-1)
