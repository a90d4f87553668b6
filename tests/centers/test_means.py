"""Skewed means: order, limits, gradients, extremes."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from centers.naive_centers import log_exp, power
from sumpool.centers import log_exp_mean, power_mean, skewed_mean

Mean = Callable[..., Tensor]
MEANS = [log_exp_mean, power_mean]
LAMS = [-math.inf, -1e3, -30.0, -1.0, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 1.0, 30.0, 1e3, math.inf]

numbers = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12)


def positive(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.1 + 2 * torch.rand(shape, generator=generator, dtype=dtype)


@given(numbers, st.integers(1, 12))
def test_skewed_mean_is_the_mean_of_one_end(values: list[float], k: int) -> None:
    k = min(k, len(values))
    x = torch.tensor(values, dtype=torch.float64)
    ordered = sorted(values)
    assert float(skewed_mean(x, k)) == pytest.approx(sum(ordered[-k:]) / k)
    assert float(skewed_mean(x, -k)) == pytest.approx(sum(ordered[:k]) / k)


@given(numbers, st.floats(0.01, 20.0), st.booleans())
def test_smooth_means_equal_their_formulas(values: list[float], lam: float, minus: bool) -> None:
    lam = -lam if minus else lam
    x = torch.tensor(values, dtype=torch.float64)
    assert float(log_exp_mean(x, lam)) == pytest.approx(log_exp(values, lam), rel=1e-9)
    assert float(power_mean(x, lam)) == pytest.approx(power(values, lam), rel=1e-9)


@pytest.mark.parametrize("mean", MEANS)
@given(numbers, st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=5))
def test_smooth_means_increase_in_lam(mean: Mean, values: list[float], lams: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    found = [float(mean(x, lam)) for lam in [-math.inf, *sorted(lams), math.inf]]
    for low, high in pairwise(found):
        assert low <= high + 1e-12 * abs(high)
    assert found[0] == min(values)
    assert found[-1] == max(values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_limits_at_zero_are_arithmetic_and_geometric_mean(dtype: torch.dtype) -> None:
    x = positive(4, 50, dtype=dtype)
    tolerance = 8 * torch.finfo(dtype).eps
    for lam in (0.0, 1e-300, 1e-30, -1e-20, 1e-9):
        slack = tolerance + 10 * abs(lam)
        assert torch.allclose(log_exp_mean(x, lam), x.mean(-1), rtol=slack)
        assert torch.allclose(power_mean(x, lam), x.log().mean(-1).exp(), rtol=slack)


@pytest.mark.parametrize("mean", MEANS)
def test_limits_at_infinity_are_the_extremes(mean: Mean) -> None:
    x = positive(5, 30)
    for big in (1e6, math.inf):
        assert torch.allclose(mean(x, big), x.amax(-1), rtol=1e-4)
        assert torch.allclose(mean(x, -big), x.amin(-1), rtol=1e-4)
    assert torch.equal(mean(x, math.inf), x.amax(-1))
    assert torch.equal(mean(x, -math.inf), x.amin(-1))


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("k", [-9, -1, 3, 10])
def test_a_suitable_lam_gives_the_skewed_mean(mean: Mean, k: int) -> None:
    x = positive(10)
    wanted = float(skewed_mean(x, k))
    low, high = -1e5, 1e5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(mean(x, middle)) < wanted else (low, middle)
    assert float(mean(x, low)) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("lam", [*LAMS[1:-1], math.inf])
def test_gradients_equal_finite_differences(mean: Mean, lam: float) -> None:
    x = positive(2, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mean(x, lam, dim=1), x)
    if abs(lam) <= 30:
        assert torch.autograd.gradgradcheck(lambda x: mean(x, lam, dim=1), x)


@pytest.mark.parametrize("k", [-6, -2, 1, 3])
def test_gradients_of_the_skewed_mean_equal_finite_differences(k: int) -> None:
    x = positive(2, 6, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: skewed_mean(x, k, dim=1), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("mean", MEANS)
def test_nothing_overflows(mean: Mean, lam: float, dtype: torch.dtype) -> None:
    top = 1e4 if dtype == torch.float16 else 1e30
    x = torch.tensor([[1 / top, 1.0, 3.0, top], [1.0, 1.0, 1.0, 1.0]], dtype=dtype)
    for sign in (1, -1) if mean is log_exp_mean else (1,):
        y = (sign * x).requires_grad_()
        value = mean(y, lam)
        value.sum().backward()
        assert value.dtype == dtype
        assert value.isfinite().all()
        assert y.grad is not None
        assert y.grad.isfinite().all()
        slack = 1 + 1e-4 * (1 if dtype != torch.float16 else 100)
        magnitude = value.abs()
        assert (magnitude <= y.abs().amax(-1) * slack).all()
        assert (magnitude * slack >= y.abs().amin(-1)).all()


@pytest.mark.parametrize("lam", [1e39, -1e39, 1e308])
def test_lam_beyond_the_dtype_is_infinite(lam: float) -> None:
    x = torch.tensor([0.5, 1.0, 2.0])
    for mean in (log_exp_mean, power_mean):
        torch.testing.assert_close(mean(x, lam), mean(x, math.copysign(math.inf, lam)))


def test_gradient_of_the_log_exp_mean_is_a_softmax() -> None:
    x = positive(3, 700, dtype=torch.float32).requires_grad_()
    for lam in (-1e3, -1e-6, 0.5, 1e3):
        (gradient,) = torch.autograd.grad(log_exp_mean(x, lam).sum(), x)
        assert torch.allclose(gradient, (lam * x).softmax(-1), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("mean", MEANS)
def test_masked_numbers_do_not_count(mean: Mean, lam: float) -> None:
    x = positive(3, 8)
    mask = torch.rand(3, 8, generator=torch.Generator().manual_seed(3)) < 0.5
    mask[:, 0] = True
    junk = torch.where(mask, x, -1e30).requires_grad_()
    value = mean(junk, lam, mask=mask)
    value.sum().backward()
    assert junk.grad is not None
    assert (junk.grad[~mask] == 0).all()
    for row in range(3):
        alone = x[row][mask[row]].clone().requires_grad_()
        expected = mean(alone, lam)
        expected.backward()
        assert torch.allclose(value[row], expected)
        assert alone.grad is not None
        assert torch.allclose(junk.grad[row][mask[row]], alone.grad)


def test_masked_numbers_are_not_skewed_to() -> None:
    x = torch.tensor([[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, -9.0]])
    mask = torch.tensor([[False, True, True, True], [True, True, True, False]])
    assert skewed_mean(x, 2, mask=mask).tolist() == [2.5, 2.5]
    assert skewed_mean(x, -2, mask=mask).tolist() == [1.5, 1.5]
    assert skewed_mean(x.T, -2, dim=0, mask=mask.T).tolist() == [1.5, 1.5]


def test_one_number_is_its_own_mean() -> None:
    x = torch.tensor([[2.0]])
    for lam in LAMS:
        assert log_exp_mean(x, lam).item() == pytest.approx(2.0)
        assert power_mean(x, lam).item() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: skewed_mean(x, 0), r"k must be an integer with 1 <= \|k\| <= 4, got 0"),
        (lambda x: skewed_mean(x, -5), r"got -5"),
        (lambda x: skewed_mean(x, 4, mask=x > 1), r"mask must leave at least 4 .* got 3"),
        (lambda x: log_exp_mean(x, math.nan), "lam must be a real number or ±inf, got nan"),
        (lambda x: log_exp_mean(x, 1.0, mask=x > 9), "mask must leave at least 1 "),
        (lambda x: log_exp_mean(x, 1.0, mask=x[:2] > 0), "mask must broadcast"),
        (lambda x: log_exp_mean(x[:0], 1.0), "x must have a number along dim -1"),
        (lambda x: log_exp_mean(x, 1.0, dim=1), r"dim must be an integer in -1..0 .* got 1"),
        (lambda x: power_mean(x - 1, 1.0), r"x must be positive, got 0\.0"),
        (lambda x: power_mean(-x, math.inf), r"x must be positive, got -1\.0"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.tensor([1.0, 2.0, 3.0, 4.0]))


def test_wrong_types_are_named() -> None:
    x = torch.ones(3)
    with pytest.raises(TypeError, match="x must be a floating-point tensor"):
        log_exp_mean(torch.arange(3), 1.0)
    with pytest.raises(TypeError, match="mask must be a boolean tensor"):
        power_mean(x, 1.0, mask=x)
    with pytest.raises(TypeError, match="lam must be a real number"):
        power_mean(x, True)
    with pytest.raises(TypeError, match="k must be an integer"):
        skewed_mean(x, 1.0)  # type: ignore[arg-type]
