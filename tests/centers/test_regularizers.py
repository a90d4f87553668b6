"""Center regularizers against loops, and what they do to centers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from centers.naive_centers import NAIVE, apart, flat, mean, power, r1, random_centers, rows_of
from sumpool.centers import (
    REGULARIZERS,
    HypersphericalEnergy,
    LogExpRegularizer,
    PowerRegularizer,
    SkewedRegularizer,
    UniformFaceEnergy,
    build_regularizer,
    center_uniformity,
)
from sumpool.centers import pairs as pairs_module

NEAR = [name for name, recipe in REGULARIZERS.items() if recipe.pairs == "near"]
FAR = [name for name, recipe in REGULARIZERS.items() if recipe.pairs == "far"]


def lam_of(name: str) -> float | None:
    """A constant that a loop can bear."""
    recipe = REGULARIZERS[name]
    if recipe.symbol is None:
        return None
    return 3.0 if recipe.symbol == "K" else 5.0


@pytest.mark.parametrize("shape", [(2, 3), (5, 3, 4)])
@pytest.mark.parametrize("name", REGULARIZERS)
def test_regularizers_equal_loops(name: str, shape: tuple[int, ...]) -> None:
    centers = random_centers(*shape)
    lam = 1.0 if shape == (2, 3) and lam_of(name) else lam_of(name)
    expected = NAIVE[name](rows_of(centers), lam or 0.0)
    assert float(build_regularizer(name, lam)(centers)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", REGULARIZERS)
def test_the_catalog_builds_its_defaults(name: str) -> None:
    recipe = REGULARIZERS[name]
    centers = random_centers(12, 6)
    assert recipe.name == name
    assert torch.equal(
        build_regularizer(name)(centers), build_regularizer(name, recipe.lam)(centers)
    )
    assert "subset=7, seed=3" in repr(build_regularizer(name, subset=7, seed=3))


def test_far_forms_on_cosines_equal_loops() -> None:
    centers = random_centers(7, 4)
    rows = rows_of(centers)
    value = LogExpRegularizer(6.0, pairs="far")(centers)
    assert float(value) == pytest.approx(-r1(rows, 6.0, lambda s: -s))
    value = PowerRegularizer(6.0, pairs="far")(centers)
    assert float(value) == pytest.approx(power(flat(rows, lambda s: (1 + s) / 2), -6.0))


@pytest.mark.parametrize("s", [0.0, 1.0, 7.0])
def test_hyperspherical_energy_equals_its_formula(s: float) -> None:
    centers = random_centers(8, 5)
    energy = 0.0
    for i in range(8):
        for j in range(8):
            if i != j:
                d = float((F.normalize(centers[i], dim=0) - F.normalize(centers[j], dim=0)).norm())
                energy += d**-s if s > 0 else -math.log(d)
    assert float(HypersphericalEnergy(s, reduction="sum")(centers)) == pytest.approx(energy)
    assert float(HypersphericalEnergy(s)(centers)) == pytest.approx(energy / 56)


def test_uniformface_equals_its_formula() -> None:
    centers = random_centers(8, 5)
    energy = 0.0
    for i in range(8):
        for j in range(8):
            if i != j:
                d = (F.normalize(centers[i], dim=0) - F.normalize(centers[j], dim=0)).norm()
                energy += 1 / float(d)
    assert float(UniformFaceEnergy()(centers)) == pytest.approx(energy / (8 * 7))


def test_energies_are_special_cases_of_the_power_regularizer() -> None:
    centers = random_centers(8, 3, 5)
    value = PowerRegularizer(1.0, on="distance")(centers)
    assert torch.allclose(value, UniformFaceEnergy()(centers))
    for s in (0.5, 2.0, 8.0):
        value = PowerRegularizer(s, on="distance")(centers) ** s
        assert torch.allclose(value, HypersphericalEnergy(s)(centers))
    # At s = 0 the energy is the logarithm of what R2 is in its limit.
    value = PowerRegularizer(0.0, on="distance")(centers).log()
    assert torch.allclose(value, HypersphericalEnergy(0.0)(centers))


def test_sharp_forms_are_the_extreme_pairs() -> None:
    centers = random_centers(9, 4)
    rows = rows_of(centers)
    farthest = mean([max(apart(s) for s in row) for row in rows])
    nearest = mean([max(row) for row in rows])
    assert float(LogExpRegularizer(math.inf)(centers)) == pytest.approx(nearest)
    assert float(SkewedRegularizer(1)(centers)) == pytest.approx(-farthest)
    far = LogExpRegularizer(math.inf, on="distance", pairs="far")(centers)
    assert float(far) == pytest.approx(-farthest)
    far = PowerRegularizer(math.inf, on="distance", pairs="far")(centers)
    assert float(far) == pytest.approx(-max(flat(rows, apart)))


def test_margin_shifts_the_value_alone() -> None:
    centers = random_centers(6, 4).requires_grad_()
    plain = LogExpRegularizer(4.0)(centers)
    shifted = LogExpRegularizer(4.0, margin=0.3)(centers)
    assert torch.allclose(plain - shifted, torch.tensor(0.3, dtype=torch.float64))
    (one,) = torch.autograd.grad(plain, centers)
    (two,) = torch.autograd.grad(shifted, centers)
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", REGULARIZERS)
def test_gradients_equal_finite_differences(name: str) -> None:
    centers = random_centers(5, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(build_regularizer(name, lam_of(name)), centers)


@pytest.mark.parametrize("name", REGULARIZERS)
def test_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    centers = random_centers(11, 3, 4).requires_grad_()
    regularizer = build_regularizer(name)
    whole = regularizer(centers)
    (expected,) = torch.autograd.grad(whole, centers)
    row_blocks = pairs_module.rowwise

    def small(unit: Tensor, row: Any) -> Tensor:
        return row_blocks(unit, row, block=4 * 33)

    monkeypatch.setattr("sumpool.centers.regularizer.rowwise", small)
    parts = regularizer(centers)
    (gradient,) = torch.autograd.grad(parts, centers)
    assert torch.allclose(parts, whole, rtol=1e-12)
    assert torch.allclose(gradient, expected, rtol=1e-9, atol=1e-14)


def steps_of(name: str, centers: Tensor, lam: float | None = None, steps: int = 30) -> Tensor:
    """Centers after some steps of the regularizer alone, on the sphere."""
    moving = F.normalize(centers, dim=-1).requires_grad_()
    regularizer = build_regularizer(name, lam)
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(regularizer(moving), moving)
        step = 0.02 * gradient / gradient.norm(dim=-1).max().clamp(min=1e-12)
        moving = F.normalize((moving - step).detach(), dim=-1).requires_grad_()
    return moving.detach()


@pytest.mark.parametrize("name", NEAR)
def test_near_forms_spread_centers(name: str) -> None:
    centers = random_centers(40, 8)
    before, after = center_uniformity(centers), center_uniformity(steps_of(name, centers))
    assert after.nearest_cosine < before.nearest_cosine - 0.02
    assert after.uniformity < before.uniformity


@pytest.mark.parametrize("name", FAR)
def test_far_forms_raise_the_largest_distances(name: str) -> None:
    centers = random_centers(40, 8)
    regularizer = SkewedRegularizer(4)  # minus the mean of the four largest of each center
    before, after = regularizer(centers), regularizer(steps_of(name, centers, 8.0))
    assert -after > -before + 0.02


def test_distances_below_the_square_are_largest_where_centers_are_even() -> None:
    centers = random_centers(40, 8)
    after = center_uniformity(steps_of("r2-far", centers, 1.0))
    assert after.nearest_cosine < center_uniformity(centers).nearest_cosine - 0.05


def test_distances_above_the_square_are_largest_at_two_poles() -> None:
    centers = steps_of("r2-far", random_centers(20, 3), 8.0, steps=200)
    along = torch.linalg.svdvals(centers)[0] ** 2 / 20  # 1: all lie on one line
    assert along > 0.999
    assert center_uniformity(centers).nearest_cosine > 0.999


@pytest.mark.parametrize("name", REGULARIZERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_equal_and_opposite_centers_are_finite(name: str, dtype: torch.dtype) -> None:
    point = torch.tensor([0.6, 0.8, 0.0])
    centers = torch.stack([point, point, -point, 3 * point, torch.zeros(3)]).to(dtype)
    centers = centers.requires_grad_()
    for lam in (None, lam_of(name)):
        lam = 2.0 if REGULARIZERS[name].symbol == "K" else lam
        value = build_regularizer(name, lam)(centers)
        (gradient,) = torch.autograd.grad(value, centers)
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", ["r1", "r1-distance", "r1-far", "r2", "r2-distance", "r2-far"])
def test_every_sharpness_is_finite_in_float32(name: str, lam: float) -> None:
    centers = random_centers(30, 8).float().requires_grad_()
    value = build_regularizer(name, lam)(centers)
    (gradient,) = torch.autograd.grad(value, centers)
    assert value.isfinite()
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0


def test_autocast_changes_nothing() -> None:
    centers = random_centers(20, 8).float()
    regularizer = build_regularizer("r2")
    plain = regularizer(centers)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(regularizer(centers), plain)


def test_an_unknown_name_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"one of r1, r1-distance, .*, mhe, got 'r3'"):
        build_regularizer("r3")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("uniformface", {"lam": 1.0}, "lam must be None for uniformface"),
        ("r1", {"lam": 0.0}, "gamma must be a number above 0, or inf, got 0.0"),
        ("r2", {"lam": -1.0}, "lam must be a number of at least 0, or inf, got -1.0"),
        ("mhe", {"lam": math.inf}, "power must be a number from 0 to 8, got inf"),
        ("mhe", {"lam": 20.0}, "power must be a number from 0 to 8, got 20"),
        ("k-far", {"lam": 0.0}, "k must be an integer of at least 1, got 0"),
        ("r1", {"subset": 1}, "subset must be None or an integer of at least 2, got 1"),
        ("r1", {"seed": -1}, "seed must be an integer in 0"),
    ],
)
def test_wrong_settings_are_named(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_regularizer(name, **settings)


def test_other_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"k must be an integer of at least 1, got 1\.5"):
        build_regularizer("k-far", 1.5)
    with pytest.raises(ValueError, match="k must be at most the 4 centers of other classes"):
        build_regularizer("k-far")(torch.ones(5, 3))
    with pytest.raises(ValueError, match=r"centers must have shape .* got \(1, 3\)"):
        build_regularizer("r1")(torch.ones(1, 3))
    with pytest.raises(TypeError, match="centers must be a floating-point tensor"):
        build_regularizer("r1")(torch.ones(5, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="on must be one of cosine, distance, got 'angle'"):
        LogExpRegularizer(on="angle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pairs must be one of near, far, got 'all'"):
        PowerRegularizer(pairs="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reduction must be one of mean, sum"):
        HypersphericalEnergy(reduction="max")  # type: ignore[arg-type]


def test_the_largest_energy_of_coinciding_centers_is_a_number() -> None:
    centers = torch.ones(4, 8, requires_grad=True)
    energy = HypersphericalEnergy(8.0, reduction="sum")(centers)
    energy.backward()
    assert bool(torch.isfinite(energy))
    assert centers.grad is not None
    assert bool(torch.isfinite(centers.grad).all())


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64])
@pytest.mark.parametrize("name", [name for name, it in REGULARIZERS.items() if it.symbol])
def test_numbers_of_numpy_are_those_of_python(name: str, kind: Callable[[int], Any]) -> None:
    centers = torch.eye(6, dtype=torch.float64)
    found = build_regularizer(name, lam=kind(3), subset=np.int64(5), seed=np.int64(1))
    expected = build_regularizer(name, lam=3, subset=5, seed=1)
    assert repr(found) == repr(expected)
    assert torch.equal(found(centers), expected(centers))


def test_words_and_fractions_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="gamma must be a number above 0, or inf, got Fraction"):
        build_regularizer("r1", lam=Fraction(3))
    with pytest.raises(TypeError, match="gamma must be a number above 0, or inf, got str"):
        build_regularizer("r1", lam="a")
