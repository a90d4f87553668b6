"""Partial optimal transport between features and prototypes: the numerics of GSP."""

from sumpool.transport.costs import (
    cosine_costs,
    lipschitz_normalize,
    prototype_costs,
    relative_norms,
)
from sumpool.transport.exact import Exact
from sumpool.transport.fused.limits import fused_support
from sumpool.transport.hard import Hard
from sumpool.transport.iterative import Iterative
from sumpool.transport.k_center import greedy_k_center
from sumpool.transport.plain import SumPooled
from sumpool.transport.problem import ConstraintErrors, TransportProblem, TransportResult
from sumpool.transport.solve import SOLVERS, Solver, partial_transport
from sumpool.transport.spread import eps_for_spread, spread_of
from sumpool.transport.sum_pool import sum_pool

__all__ = [
    "SOLVERS",
    "ConstraintErrors",
    "Exact",
    "Hard",
    "Iterative",
    "Solver",
    "SumPooled",
    "TransportProblem",
    "TransportResult",
    "cosine_costs",
    "eps_for_spread",
    "fused_support",
    "greedy_k_center",
    "lipschitz_normalize",
    "partial_transport",
    "prototype_costs",
    "relative_norms",
    "spread_of",
    "sum_pool",
]
