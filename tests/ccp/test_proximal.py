"""The pull to the last solution: which weights it touches, and by how much."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sumpool.ccp import ProximalPull


def test_the_pull_is_the_gradient_of_its_penalty() -> None:
    parameters = {name: nn.Parameter(torch.randn(3, dtype=torch.float64)) for name in "ab"}
    pull = ProximalPull(parameters, 0.3)
    pull.set_anchor({name: torch.randn(3, dtype=torch.float64) for name in "ab"})
    assert pull.anchor is not None
    penalty = sum((p - pull.anchor[name]).square().sum() for name, p in parameters.items())
    wanted = torch.autograd.grad(0.3 / 2 * penalty, list(parameters.values()))  # type: ignore[operator]
    for parameter in parameters.values():
        parameter.grad = torch.ones(3, dtype=torch.float64)
    pull.add()
    for parameter, gradient in zip(parameters.values(), wanted, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad - 1, gradient, atol=1e-12)


def test_steps_along_the_pull_lead_to_the_anchor() -> None:
    weight = nn.Parameter(torch.tensor([5.0, -3.0]))
    pull = ProximalPull({"weight": weight}, 1.0)
    pull.set_anchor({"weight": torch.tensor([1.0, 2.0])})
    before = pull.drift()
    for _ in range(50):
        weight.grad = torch.zeros(2)
        pull.add()
        weight.data -= 0.2 * weight.grad
    assert before == pytest.approx(41**0.5)
    assert pull.drift() < 1e-3


def test_nothing_is_pulled_without_anchor_weight_or_gradient() -> None:
    weight = nn.Parameter(torch.ones(2))
    without = ProximalPull({"weight": weight}, 1.0)
    weight.grad = torch.zeros(2)
    without.add()
    assert without.drift() == 0
    zero = ProximalPull({"weight": weight}, 0.0)
    zero.set_anchor({"weight": torch.zeros(2)})
    zero.add()
    assert torch.equal(weight.grad, torch.zeros(2))
    weight.grad = None
    one = ProximalPull({"weight": weight}, 1.0)
    one.set_anchor({"weight": torch.zeros(2)})
    one.add()
    assert weight.grad is None


def test_the_anchor_does_not_follow() -> None:
    weight = nn.Parameter(torch.ones(2))
    pull = ProximalPull({"weight": weight}, 1.0)
    pull.set_anchor()
    weight.data += 1
    assert pull.anchor is not None
    assert torch.equal(pull.anchor["weight"], torch.ones(2))
    kept = pull.anchor["weight"].data_ptr()
    pull.set_anchor()
    assert torch.equal(pull.anchor["weight"], weight)
    assert pull.anchor["weight"].data_ptr() == kept


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight must be at least 0, got -0\.1"):
        ProximalPull({}, -0.1)
