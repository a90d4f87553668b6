"""Entry point of the transport solvers: from costs to weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from sumpool.transport.exact import Exact
from sumpool.transport.hard import Hard
from sumpool.transport.iterative import Iterative
from sumpool.transport.problem import TransportProblem, TransportResult


class Solver(Protocol):
    """A callable that solves a transport problem."""

    def __call__(self, problem: TransportProblem) -> TransportResult:
        """Solve ``problem``."""
        ...


#: Solvers by name, with their defaults.
SOLVERS: Mapping[str, Solver] = {"exact": Exact(), "iterative": Iterative(), "hard": Hard()}


def resolve_solver(solver: str | Solver) -> Solver:
    """Return the solver of the given name, or ``solver`` itself if it is a solver."""
    if not isinstance(solver, str):
        if not callable(solver):
            raise TypeError(
                f"solver must be one of {sorted(SOLVERS)} or a solver, got {type(solver).__name__}"
            )
        return solver
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {sorted(SOLVERS)} or a solver, got {solver!r}")
    return SOLVERS[solver]


def partial_transport(
    cost: Tensor,
    mu: float | Tensor,
    eps: float | Tensor,
    *,
    mask: Tensor | None = None,
    solver: str | Solver = "exact",
) -> TransportResult:
    r"""Transport the share μ of the mass of n features to m prototypes.

    Solves, for each image, the smoothed problem P2 [gsp]

    .. math::
        \min_{\rho, \pi \ge 0} \sum c_{ji} \pi_{ji}
            + \tfrac1\varepsilon\bigl(\sum \pi \log \pi + \sum \rho \log \rho\bigr)
        \quad\text{s.t.}\quad \rho_j + \sum_i \pi_{ji} = \tfrac1n,\; \sum \pi = \mu,

    or, with ``solver="hard"``, the linear program P1 that it smooths. Weights and attributes of P2
    are differentiable to any order in the cost, and in μ and ε if these are tensors. Half-precision
    costs are solved in float32, with or without autocast. The plan is not built unless
    :meth:`TransportResult.plan` is called.

    Args:
        cost: Costs of shape (..., n, m), n features by m prototypes.
        mu: Share μ in (0, 1] of the mass to transport; a number, or a tensor of shape () or (...).
        eps: Inverse smoothing ε > 0, large = sharp; a number, or a tensor of shape () or (...).
        mask: True for valid features, broadcastable to (..., n).
        solver: "exact" (P2 to machine precision), "iterative" (the papers' 100 iterations),
            "hard" (P1), or a configured solver such as ``Iterative(steps=25, unroll=True)``.

    Returns:
        A :class:`TransportResult` with ``weights`` (..., n), ``attributes`` (..., m),
        ``residual`` (..., n), ``plan()`` and ``errors()``.

    Raises:
        TypeError: If an argument has the wrong type, such as an integer cost.
        ValueError: If an argument is out of range; the message names it and the accepted values.
            Values of tensors on an accelerator are not checked.

    Example:
        >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
        >>> result = partial_transport(cost, mu=0.5, eps=4.0)
        >>> result.weights
        tensor([0.4993, 0.4993, 0.0013])
        >>> result.attributes
        tensor([0.5000, 0.5000])
        >>> partial_transport(cost, mu=0.5, eps=4.0, solver="hard").weights
        tensor([0.6667, 0.3333, 0.0000])
    """
    chosen = resolve_solver(solver)
    with torch.autocast(cost.device.type if isinstance(cost, Tensor) else "cpu", enabled=False):
        return chosen(TransportProblem(cost, mu, eps, mask))
