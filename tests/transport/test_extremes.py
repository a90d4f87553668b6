"""Nothing breaks at the ends of the ranges, nor on problems made to try the root finder."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from sumpool.transport import Exact, Iterative, partial_transport, sum_pool
from transport.checker import assert_result, product_rounding
from transport.generators import profiles, random_cost, random_features, shares, source
from transport.oracles import bisected_weights

EPS = [1e-3, 1e-1, 1.0, 10.0, 1e3]
MU = [1e-3, 0.3, 0.5, 0.7, 1 - 1e-6, 1.0]
COUNTS = [1, 2, 49, pytest.param(3136, marks=pytest.mark.process)]
PROTOTYPES, CHANNELS = 4, 8


def ordinary(n: int) -> tuple[Tensor, Tensor]:
    return random_features(n=n, m=PROTOTYPES, d=CHANNELS, seed=n, dtype=torch.float32)


def identical(n: int) -> tuple[Tensor, Tensor]:
    features, prototypes = ordinary(n)
    return features[:1].expand(n, CHANNELS).clone(), prototypes


def on_prototypes(n: int) -> tuple[Tensor, Tensor]:
    _, prototypes = ordinary(n)
    return prototypes[torch.arange(n) % PROTOTYPES].clone(), prototypes


def all_on_one_prototype(n: int) -> tuple[Tensor, Tensor]:
    features, _ = identical(n)
    return features, features[:1].expand(PROTOTYPES, CHANNELS).clone()


def zeros(n: int) -> tuple[Tensor, Tensor]:
    features, prototypes = ordinary(n)
    return torch.zeros_like(features), prototypes


def zero_prototypes(n: int) -> tuple[Tensor, Tensor]:
    features, prototypes = ordinary(n)
    return features, torch.zeros_like(prototypes)


def huge(n: int) -> tuple[Tensor, Tensor]:
    features, prototypes = ordinary(n)
    unit = torch.nn.functional.normalize
    return 1e4 * unit(features, dim=-1), 1e4 * unit(prototypes, dim=-1)


def mixed(n: int) -> tuple[Tensor, Tensor]:
    """Norms 0 and 1e4, ordinary ones and prototypes, in one image."""
    features, prototypes = ordinary(n)
    features[::4] = 0
    features[1::4] *= 1e4
    features[2::4] = prototypes[0]
    return features, prototypes


KINDS = [
    ordinary,
    identical,
    on_prototypes,
    all_on_one_prototype,
    zeros,
    zero_prototypes,
    huge,
    mixed,
]


def complaint(features: Tensor, prototypes: Tensor, mu: float, eps: float) -> str | None:
    """What is wrong with pooling at (μ, ε), values and gradients; None if nothing."""
    inputs = features.requires_grad_(), prototypes.requires_grad_()
    out = sum_pool(*inputs, mu, eps)
    for name, value in out._asdict().items():
        if not value.isfinite().all():
            return f"{name} are not finite"
    off = float((out.weights.detach().sum(-1) - 1).abs().max())
    if off > 1e-5:
        return f"the weights sum to 1 ± {off:.1e}"
    off = float((out.attributes.detach().sum(-1) - 1).abs().max())
    if off > max(1e-5, product_rounding(features)):
        return f"the attributes sum to 1 ± {off:.1e}"
    g = source(1)
    loss = sum((value * torch.randn(value.shape, generator=g)).sum() for value in out)
    for name, grad in zip(
        ("features", "prototypes"), torch.autograd.grad(loss, inputs), strict=True
    ):
        if not grad.isfinite().all():
            return f"the gradient to the {name} is not finite"
    return None


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
def test_float32_holds_at_every_extreme(kind, n: int) -> None:
    features, prototypes = kind(n)
    found = {
        (mu, eps): complaint(features, prototypes, mu, eps)
        for mu, eps in itertools.product(MU, EPS)
    }
    assert {setting: it for setting, it in found.items() if it is not None} == {}


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("eps", [1e-3, 1e3])
@pytest.mark.parametrize("mu", [1e-3, 0.5, 1 - 1e-6])
def test_float32_holds_for_learned_settings(mu: float, eps: float, background: bool) -> None:
    features, prototypes = mixed(49)
    settings = torch.tensor(mu).requires_grad_(), torch.tensor(eps).requires_grad_()
    out = sum_pool(features, prototypes, *settings, background=background)
    assert float((out.weights.detach().sum() - 1).abs()) <= 1e-5
    for grad in torch.autograd.grad(out.weights[0] + out.attributes[0], settings):
        assert grad.isfinite()


@pytest.mark.process
@pytest.mark.parametrize("name", sorted(profiles(3136, torch.float64)))
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_root_is_found_among_thousands_of_features(
    name: str, dtype: torch.dtype, tol: float
) -> None:
    cost = profiles(3136, dtype)[name].unsqueeze(-1)
    mu = torch.tensor(shares(3136), dtype=dtype)
    eps = torch.tensor([1e-3, 1.0, 5.0, 50.0, 1e3], dtype=dtype).unsqueeze(-1)
    cost = cost.expand(len(eps), len(mu), 3136, 1)
    assert_result(partial_transport(cost, mu, eps, solver=Exact(steps=10)), tol)


@pytest.mark.parametrize("n", [1, 3, 49, pytest.param(196, marks=pytest.mark.process)])
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_root_is_found_on_every_profile(n: int, dtype: torch.dtype, tol: float) -> None:
    cost = torch.stack(list(profiles(n, dtype).values()))  # (profile, n)
    mu = torch.tensor(shares(n), dtype=dtype)
    eps = torch.tensor([*EPS, 5.0, 20.0, 50.0, 300.0], dtype=dtype).unsqueeze(-1)
    cost = cost[:, None, None, :, None].expand(-1, len(eps), len(mu), n, 1)
    assert_result(partial_transport(cost, mu, eps, solver=Exact(steps=10)), tol)


@pytest.mark.parametrize(("n", "eps"), [(3, 300.0), (10, 5.0)])
def test_the_root_is_the_bisected_one_on_every_profile(n: int, eps: float) -> None:
    for name, nearest in profiles(n, torch.float64).items():
        cost = nearest.unsqueeze(-1)
        for mu in (0.1, 1 / n, (n // 2 + 1e-4) / n, (n - 1) / n, 0.999):
            weights = partial_transport(cost, mu, eps).weights
            off = float((weights - bisected_weights(cost, mu, eps)).abs().max())
            assert off <= 1e-11, (name, mu, off)


@pytest.mark.parametrize("solver", [Exact(), Iterative(), Iterative(unroll=True), "hard"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_costs_neither_hang_nor_crash_the_solver(solver, bad: float) -> None:
    cost = random_cost(3, 49, 8, dtype=torch.float32)
    cost[1, 7, 2] = bad
    result = partial_transport(cost, 0.3, 5.0, solver=solver)
    clean = partial_transport(cost[[0, 2]], 0.3, 5.0, solver=solver)
    # The images beside it are untouched.
    torch.testing.assert_close(result.weights[[0, 2]], clean.weights)
    if math.isnan(bad) and solver != "hard":
        assert result.weights[1].isnan().any()


def test_nan_features_give_nan() -> None:
    features, prototypes = random_features(3, n=49, m=8, d=4, dtype=torch.float32)
    features[1, 5, 0] = math.nan
    out = sum_pool(features.requires_grad_(), prototypes, 0.3, 5.0)
    assert out.embedding[1].isnan().any()
    assert out.embedding[[0, 2]].isfinite().all()
    assert out.weights[[0, 2]].isfinite().all()
    out.embedding.sum().backward()
    assert features.grad is not None


coordinates = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
settings = st.tuples(
    st.sampled_from(MU) | st.floats(1e-3, 1.0), st.sampled_from(EPS) | st.floats(1e-3, 1e3)
)


@st.composite
def pooling_problems(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Features and prototypes with many repeated values."""
    n, m, d = draw(st.integers(1, 12)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    values = draw(hnp.arrays(np.float32, (n + m, d), elements=coordinates))
    rows = draw(st.lists(st.integers(0, n + m - 1), min_size=n + m, max_size=n + m))
    features, prototypes = torch.from_numpy(values[rows]).split([n, m])
    return features.clone(), prototypes.clone()


@given(pooling_problems(), settings)
def test_float32_holds_on_anything(
    problem: tuple[Tensor, Tensor], setting: tuple[float, float]
) -> None:
    assert complaint(*problem, *setting) is None


@st.composite
def cost_matrices(draw: st.DrawFn) -> Tensor:
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 5)))
    elements = st.floats(0, 2) | st.sampled_from([0.0, 0.5, 1.0, 2.0])
    return torch.from_numpy(draw(hnp.arrays(np.float64, shape, elements=elements)))


@given(cost_matrices(), settings)
def test_exact_equals_bisection_on_anything(cost: Tensor, setting: tuple[float, float]) -> None:
    mu, eps = setting
    result = partial_transport(cost, mu, eps)
    assert_result(result, 1e-12)
    if mu < 1:
        torch.testing.assert_close(
            result.weights, bisected_weights(cost, mu, eps), rtol=0, atol=1e-10
        )


@given(cost_matrices(), settings, st.data())
def test_a_mask_equals_cropping_on_anything(
    cost: Tensor, setting: tuple[float, float], data: st.DataObject
) -> None:
    n = cost.shape[0]
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    masked = partial_transport(cost, *setting, mask=mask)
    cropped = partial_transport(cost[mask], *setting)
    assert_result(masked, 1e-12, attributes=cropped.attributes)
    torch.testing.assert_close(masked.weights[mask], cropped.weights, rtol=0, atol=1e-11)
