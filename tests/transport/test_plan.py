"""The plan: right when asked for, never built otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sumpool.transport import partial_transport
from transport.generators import random_cost, random_mask

SOLVERS = ["exact", "iterative", "hard"]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_plan_has_the_marginals(solver: str, masked: bool) -> None:
    mask = random_mask(3, 20) if masked else None
    result = partial_transport(random_cost(3, 20, 5), 0.3, 5.0, mask=mask, solver=solver)
    plan = result.plan()
    assert plan.shape == (3, 20, 5)
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum((-2, -1)), torch.full((3,), 0.3).double())
    torch.testing.assert_close(plan.sum(-1), result.transported)
    torch.testing.assert_close(plan.sum(-2) / 0.3, result.attributes)
    torch.testing.assert_close(result.pooled_plan(), plan / 0.3)


def test_the_plan_is_stationary() -> None:
    # π_ji = t e^{−ε c_ji} ρ_j with one t for the image.
    cost = random_cost(20, 5)
    result = partial_transport(cost, 0.3, 5.0)
    t = result.plan() / ((-5.0 * cost).exp() * result.residual.unsqueeze(-1))
    torch.testing.assert_close(t, t[0, 0].expand_as(t))


class Outputs(TorchDispatchMode):
    """Keeps every tensor that an operator returns."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for it in out if isinstance(out, tuple | list) else [out]:
            if isinstance(it, Tensor):
                self.seen.append(it.detach().clone())
        return out

    def holds(self, wanted: Tensor) -> bool:
        return any(it.shape == wanted.shape and torch.allclose(it, wanted) for it in self.seen)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_plan_is_built_on_request_only(solver: str) -> None:
    cost = random_cost(2, 11, 7)
    asked = partial_transport(cost, 0.3, 5.0, solver=solver)
    plan = asked.plan()
    split = plan / asked.transported.clamp_min(1e-300).unsqueeze(-1)  # what each feature sends

    with Outputs() as outputs:
        result = partial_transport(cost, 0.3, 5.0, solver=solver)
        _ = result.weights, result.residual, result.transported, result.errors()
    assert not outputs.holds(plan)
    assert not outputs.holds(plan.mT)
    assert not outputs.holds(split)

    with Outputs() as outputs:
        _ = result.attributes
    assert not outputs.holds(plan)

    with Outputs() as outputs:
        result.plan()
    assert outputs.holds(plan)


def test_no_iteration_or_newton_step_touches_all_pairs() -> None:
    # Whatever the number of steps, the weights cost the same few passes over (n, m).
    from sumpool.transport import Exact, Iterative

    def passes(solver: Exact | Iterative) -> int:
        with Outputs() as outputs:
            _ = partial_transport(random_cost(2, 11, 7), 0.3, 5.0, solver=solver).weights
        return sum(it.shape[-2:] in ((11, 7), (7, 11)) for it in outputs.seen)

    assert passes(Exact(steps=20)) == passes(Exact(steps=2))
    assert passes(Iterative(steps=20)) == passes(Iterative(steps=2))
