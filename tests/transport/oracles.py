"""Other ways to the same answers: slow, literal, independent of the package."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor


def bisected_weights(cost: Tensor, mu: float, eps: float) -> Tensor:
    """p of P2 for one image by bisection of Σ σ(τ + ℓ_j) = nμ, with exactly rounded sums."""
    n = cost.shape[0]
    sums = (-eps * cost.double()).logsumexp(-1).tolist()

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x)) if x > -700 else 0.0

    low, high = -max(sums) - 50, -min(sums) + 50
    for _ in range(100):
        tau = (low + high) / 2
        if math.fsum(sigmoid(tau + it) for it in sums) < n * mu:
            low = tau
        else:
            high = tau
    return torch.tensor([sigmoid(tau + it) / (n * mu) for it in sums], dtype=torch.float64)


def iterate(cost: Tensor, mu: float, eps: float, steps: int) -> tuple[Tensor, Tensor]:
    """ρ and t of Proposition 4.1, word for word: from t = 1, ρ = (1/n)/(1 + t s), t = μ/Σ s ρ."""
    n = cost.shape[-2]
    s = (-eps * cost).exp().sum(-1)
    t = torch.ones_like(s[..., :1])
    for _ in range(steps):
        rho = (1 / n) / (1 + t * s)
        t = mu / (s * rho).sum(-1, keepdim=True)
    return rho, t


def linear_program(cost: Tensor, mu: float) -> tuple[Tensor, Tensor]:
    """π (n, m) and ρ (n,) of P1 for one image, by SciPy's HiGHS."""
    n, m = cost.shape
    marginals = np.hstack([np.kron(np.eye(n), np.ones((1, m))), np.eye(n)])  # of (π, ρ)
    mass = np.concatenate([np.ones(n * m), np.zeros(n)])
    solution = linprog(
        np.concatenate([cost.numpy().ravel(), np.zeros(n)]),
        A_eq=np.vstack([marginals, mass]),
        b_eq=np.concatenate([np.full(n, 1 / n), [mu]]),
        bounds=(0, None),
        method="highs",
    )
    assert solution.status == 0, solution.message
    plan, residual = np.split(solution.x, [n * m])
    return torch.from_numpy(plan.reshape(n, m)), torch.from_numpy(residual)


def convex_program(cost: Tensor, mu: float, eps: float) -> tuple[Tensor, Tensor]:
    """π (n, m) and ρ (n,) of P2 for one image, by an interior-point method for convex cones."""
    import cvxpy as cp

    n, m = cost.shape
    plan, residual = cp.Variable((n, m)), cp.Variable(n)
    entropy = cp.sum(cp.entr(plan)) + cp.sum(cp.entr(residual))
    program = cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(cost.numpy(), plan)) - entropy / eps),
        [residual + cp.sum(plan, axis=1) == 1 / n, cp.sum(plan) == mu],
    )
    program.solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-11, max_iter=200
    )
    assert program.status == cp.OPTIMAL
    return torch.from_numpy(plan.value), torch.from_numpy(residual.value)


def closed_form_gradient(
    plan: Tensor, residual: Tensor, to_plan: Tensor, to_residual: Tensor, mu: float, eps: float
) -> Tensor:
    """∂L/∂c of Proposition 4.2 for one image, from ∂L/∂π and ∂L/∂ρ; plans are (m, n) there.

    −ε(π ⊙ ∂L/∂π − n π Diag(q − η/(1 − μ − nρᵀρ) ρ)), with q = ρ ⊙ ∂L/∂ρ + (π ⊙ ∂L/∂π)ᵀ 1_m and
    η = (ρ ⊙ ∂L/∂ρ)ᵀ 1_n − n qᵀρ.
    """
    n = residual.shape[0]
    pi, to_pi, rho = plan.mT, to_plan.mT, residual
    q = rho * to_residual + (pi * to_pi).sum(0)
    eta = (rho * to_residual).sum() - n * q @ rho
    diagonal = q - eta / (1 - mu - n * rho @ rho) * rho
    return (-eps * (pi * to_pi - n * pi @ torch.diag(diagonal))).mT
