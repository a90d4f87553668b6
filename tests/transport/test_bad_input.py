"""Every unusable argument raises, and the message says which, what it was and what is accepted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sumpool.transport import (
    Exact,
    Iterative,
    greedy_k_center,
    lipschitz_normalize,
    partial_transport,
    prototype_costs,
    sum_pool,
)

COST = torch.rand(2, 5, 3)
FEATURES = torch.rand(2, 5, 4)
PROTOTYPES = torch.rand(3, 4)
NO_FEATURE = torch.tensor([[True] * 5, [False] * 5])


def transport(cost: Any = COST, mu: Any = 0.3, eps: Any = 5.0, **rest: Any) -> Tensor:
    return partial_transport(cost, mu, eps, **rest).weights


def pool(
    features: Any = FEATURES,
    prototypes: Any = PROTOTYPES,
    mu: Any = 0.3,
    eps: Any = 5.0,
    **rest: Any,
) -> Tensor:
    return sum_pool(features, prototypes, mu, eps, **rest).embedding


@pytest.mark.parametrize("call", [transport, pool])
@pytest.mark.parametrize("mu", [0, -0.1, 1 + 1e-9, math.nan, math.inf])
def test_mu_outside_its_range_is_refused(call: Any, mu: float) -> None:
    with pytest.raises(
        ValueError, match=rf"mu must be a number in \(0, 1\], at least 1e-30, got {mu}$"
    ):
        call(mu=mu)


@pytest.mark.parametrize("call", [transport, pool])
@pytest.mark.parametrize("mu", [0.0, 1e-31, 1.5, math.nan])
def test_a_tensor_mu_outside_its_range_is_refused(call: Any, mu: float) -> None:
    with pytest.raises(ValueError, match=r"mu must be a number in \(0, 1\], at least 1e-30, got "):
        call(mu=torch.tensor(mu))


@pytest.mark.parametrize("call", [transport, pool])
@pytest.mark.parametrize("eps", [0, -1.0, 1e39, math.inf, -math.inf, math.nan])
def test_eps_outside_its_range_is_refused(call: Any, eps: float) -> None:
    words = r"eps must be a positive finite number up to 1e\+30, got "
    with pytest.raises(ValueError, match=f"{words}{eps}$".replace("1e+39", r"1e\+39")):
        call(eps=eps)
    with pytest.raises(ValueError, match=words):
        call(eps=torch.tensor([1.0, eps]))


@pytest.mark.parametrize("name", ["mu", "eps"])
@pytest.mark.parametrize("value", ["0.3", None, True, [0.3]])
def test_a_setting_that_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{name} must be .* got {type(value).__name__}"):
        transport(**{name: value})


@pytest.mark.parametrize("name", ["mu", "eps"])
def test_a_setting_of_integers_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a floating-point tensor, got torch.int64"):
        transport(**{name: torch.tensor(1)})


@pytest.mark.parametrize("name", ["mu", "eps"])
@pytest.mark.parametrize("shape", [(3,), (2, 1), (1, 2, 1)])
def test_a_setting_of_a_wrong_shape_is_refused(name: str, shape: tuple[int, ...]) -> None:
    value = torch.full(shape, 0.5)
    match = (
        rf"{name} must be a scalar or broadcast to the batch shape \(2,\), got shape \({shape[0]},"
    )
    with pytest.raises(ValueError, match=match):
        transport(**{name: value})


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (2, 0, 3), (5, 0)])
def test_a_cost_of_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"cost must have shape \(\.\.\., n, m\) with n >= 1.*got"):
        transport(torch.zeros(shape))


def test_an_integer_cost_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cost must be a floating-point tensor, got torch.int64"):
        transport(torch.ones(5, 3, dtype=torch.int64))


def test_a_cost_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cost must be a torch.Tensor, got list"):
        transport([[1.0]])


@pytest.mark.parametrize("call", [prototype_costs, pool])
def test_features_and_prototypes_of_wrong_shape_are_refused(call: Any) -> None:
    with pytest.raises(ValueError, match=r"features must have shape .* n >= 1, got \(4,\)"):
        call(torch.rand(4), PROTOTYPES)
    with pytest.raises(ValueError, match=r"prototypes must have shape \(m, d\).*got \(4,\)"):
        call(FEATURES, torch.rand(4))
    with pytest.raises(ValueError, match=r"prototypes must have shape .* m >= 1, got \(0, 4\)"):
        call(FEATURES, torch.rand(0, 4))
    with pytest.raises(
        ValueError, match=r"features must have the 6 channels of the prototypes, got 4"
    ):
        call(FEATURES, torch.rand(3, 6))


def test_no_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"features must have .* n >= 1, got \(2, 0, 4\)"):
        pool(torch.rand(2, 0, 4))


@pytest.mark.parametrize("call", [prototype_costs, pool])
def test_integer_features_and_prototypes_are_refused(call: Any) -> None:
    whole = torch.ones(3, 4, dtype=torch.int32)
    with pytest.raises(TypeError, match=r"features must be a floating-point .* got torch.int32"):
        call(whole, PROTOTYPES)
    with pytest.raises(TypeError, match=r"prototypes must be a floating-point .* got torch.int32"):
        call(FEATURES, whole)
    with pytest.raises(TypeError, match=r"features must be a torch.Tensor, got list"):
        call([[0.0]], PROTOTYPES)


@pytest.mark.parametrize("call", [transport, pool])
def test_a_mask_without_a_valid_feature_is_refused(call: Any) -> None:
    match = r"mask must leave at least one valid feature per image, image \[1\] has none"
    with pytest.raises(ValueError, match=match):
        call(mask=NO_FEATURE)
    with pytest.raises(ValueError, match=r"mask must leave at least one valid feature"):
        call(mask=torch.zeros(5, dtype=torch.bool))


@pytest.mark.parametrize("call", [transport, pool])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused(call: Any, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"mask must be a boolean tensor .*got {dtype}"):
        call(mask=torch.ones(2, 5, dtype=dtype))
    with pytest.raises(TypeError, match=r"mask must be a boolean tensor .*got list"):
        call(mask=[True] * 5)


@pytest.mark.parametrize("call", [transport, pool])
@pytest.mark.parametrize("shape", [(4,), (5, 2), (2, 6), (3, 5), (1, 2, 5)])
def test_a_mask_of_a_wrong_shape_is_refused(call: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"mask must broadcast to shape \(2, 5\), got \("):
        call(mask=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("call", [transport, pool])
def test_an_unknown_solver_is_refused(call: Any) -> None:
    match = r"solver must be one of \['exact', 'hard', 'iterative'\] or a solver, got 'sinkhorn'"
    with pytest.raises(ValueError, match=match):
        call(solver="sinkhorn")


@pytest.mark.parametrize("solver", [Exact, Iterative])
@pytest.mark.parametrize("steps", [0, -3])
def test_fewer_than_one_step_is_refused(solver: Any, steps: int) -> None:
    with pytest.raises(ValueError, match=f"steps must be at least 1, got {steps}"):
        solver(steps=steps)


def test_the_background_of_everything_is_refused() -> None:
    for everything in (1.0, torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"mu must be a number in \(0, 1\), .* background"):
            pool(mu=everything, background=True)
        with pytest.raises(ValueError, match=r"mu must be a number in \(0, 1\), .* background"):
            _ = partial_transport(COST, everything, 5.0).background_weights


def test_normalizing_integers_is_refused() -> None:
    with pytest.raises(TypeError, match=r"x must be a floating-point tensor, got torch.int64"):
        lipschitz_normalize(torch.ones(3, dtype=torch.int64))


def test_k_center_arguments_out_of_range_are_refused() -> None:
    points = torch.rand(2, 5, 3)
    for k in (0, -1, 6, 2.5, True):
        match = f"k must be between 1 and the 5 points to pick from, got {k}"
        with pytest.raises(ValueError, match=match):
            greedy_k_center(points, k)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"mask must be a torch.Tensor, got list"):
        greedy_k_center(points, 1, mask=[True])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"k must be between 1 and the 0 points .* got 1"):
        greedy_k_center(points, 1, mask=NO_FEATURE)
    with pytest.raises(ValueError, match=r"points must have shape \(\.\.\., n, d\) .*, got \(3,\)"):
        greedy_k_center(torch.rand(3), 1)
    with pytest.raises(TypeError, match=r"points must be a floating-point tensor, got torch.int64"):
        greedy_k_center(torch.ones(3, 2, dtype=torch.int64), 1)
    with pytest.raises(ValueError, match=r"mask must be boolean of shape \(2, 5\), got torch"):
        greedy_k_center(points, 1, mask=torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"mask must be boolean of shape \(2, 5\), .* \(5,\)"):
        greedy_k_center(points, 1, mask=torch.ones(5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"chosen must have the 3 channels .* shape \(2, 1, 4\)"):
        greedy_k_center(points, 1, chosen=torch.rand(2, 1, 4))


def test_a_solver_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match=r"solver must be one of .* or a solver, got NoneType"):
        transport(solver=None)
