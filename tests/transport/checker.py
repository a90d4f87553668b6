"""The one checker of all solvers' results."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from sumpool.transport import TransportResult

#: What :meth:`TransportResult.errors` measures; exact solvers promise all of it.
CONSTRAINTS = ("mass", "marginal", "weights")


def product_rounding(cost: Tensor) -> float:
    """Rounding of a product over n features, in whatever order it is summed."""
    return cost.shape[-2] * torch.finfo(cost.dtype).eps


def assert_result(
    result: TransportResult,
    tol: float,
    *,
    promises: Collection[str] = CONSTRAINTS,
    weights: Tensor | None = None,
    attributes: Tensor | None = None,
) -> None:
    """Assert that ``result`` is finite, not negative and within ``tol`` of what it promises.

    Args:
        result: What a solver returned.
        tol: Largest deviation from a constraint, relative to what it asks, and from the answers.
        promises: The constraints that the solver promises to meet.
        weights: The right weights, where they are known.
        attributes: The right attributes, where they are known.
    """
    problem = result.problem
    cost = problem.cost.detach()
    for name in ("weights", "residual", "transported"):
        value = getattr(result, name).detach()
        assert value.shape == cost.shape[:-1], name
        assert value.dtype == cost.dtype, name
        assert value.isfinite().all(), name
        assert (value >= 0).all(), name
        if problem.mask is not None:
            assert (value.masked_fill(problem.mask, 0) == 0).all(), name
    arrived = result.attributes.detach()
    assert arrived.shape == (*cost.shape[:-2], cost.shape[-1])
    assert arrived.isfinite().all()
    assert (arrived >= 0).all()
    errors = result.errors()
    for name in promises:
        worst = float(getattr(errors, name).detach().max())
        assert worst <= tol, f"{name} is off by {worst:.2e}, more than {tol:.0e}"
    if "mass" in promises:
        off = float((arrived.sum(-1) - 1).abs().max())
        assert off <= max(tol, product_rounding(cost)), f"attributes sum to 1 ± {off:.2e}"
    if "marginal" in promises:
        share = torch.as_tensor(problem.mu, dtype=cost.dtype).detach()
        kept = result.residual.detach().sum(-1)
        assert float((kept - (1 - share)).abs().max()) <= tol, "the residual is not 1 − μ"
    if weights is not None:
        torch.testing.assert_close(result.weights.detach(), weights, rtol=0, atol=tol)
    if attributes is not None:
        torch.testing.assert_close(arrived, attributes, rtol=0, atol=tol)
