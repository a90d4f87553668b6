"""Center regularizers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sumpool.centers.energy import HypersphericalEnergy, UniformFaceEnergy
from sumpool.centers.extremes import SkewedRegularizer
from sumpool.centers.log_exp import LogExpRegularizer
from sumpool.centers.pairs import Comparison, Extreme
from sumpool.centers.power import PowerRegularizer
from sumpool.centers.regularizer import CenterRegularizer
from sumpool.transport.validation import is_number


@dataclass(frozen=True)
class RegularizerRecipe:
    """A regularizer in the catalog.

    Attributes:
        name: Key in ``REGULARIZERS``.
        summary: One-line description of the minimized quantity.
        reference: Key in docs/references.md.
        pairs: Pairs with the largest weight, "near" or "far".
        symbol: Symbol of its only constant, set by ``lam``; None without a constant.
        lam: Default value of the constant.
        make: Builds the module from the value of the constant, if any, a subset and a seed.
    """

    name: str
    summary: str
    reference: str
    pairs: Extreme
    symbol: str | None
    lam: float | None
    make: Callable[..., CenterRegularizer]


def _log_exp(
    name: str, summary: str, on: Comparison, pairs: Extreme, lam: float
) -> RegularizerRecipe:
    make = partial(LogExpRegularizer, on=on, pairs=pairs)
    return RegularizerRecipe(name, summary, "skew", pairs, "γ", lam, make)


def _power(
    name: str, summary: str, on: Comparison, pairs: Extreme, lam: float
) -> RegularizerRecipe:
    make = partial(PowerRegularizer, on=on, pairs=pairs)
    return RegularizerRecipe(name, summary, "skew", pairs, "λ", lam, make)


def _skewed(name: str, summary: str, pairs: Extreme) -> RegularizerRecipe:
    def make(lam: float, **options: Any) -> CenterRegularizer:
        # Configuration files may contain 8.0; other non-integers raise.
        k = int(lam) if is_number(lam) and lam % 1 == 0 else lam
        return SkewedRegularizer(k, pairs=pairs, **options)  # type: ignore[arg-type]

    return RegularizerRecipe(name, summary, "skew", pairs, "K", 8.0, make)


_RECIPES = (
    _log_exp("r1", "log-exp mean of the cosines of a center", "cosine", "near", 32.0),
    _log_exp(
        "r1-distance", "log-exp mean of minus the distances of a center", "distance", "near", 32.0
    ),
    _log_exp(
        "r1-far", "minus the log-exp mean of the distances of a center", "distance", "far", 1.0
    ),
    _power("r2", "power mean of (1 + cosine)/2 over all pairs", "cosine", "near", 32.0),
    _power("r2-distance", "power mean of 1/distance over all pairs", "distance", "near", 32.0),
    _power("r2-far", "minus the power mean of the distances of all pairs", "distance", "far", 1.0),
    _skewed("k-near", "minus the mean distance of a center to its K nearest", "near"),
    _skewed("k-far", "minus the mean distance of a center to its K farthest", "far"),
    RegularizerRecipe(
        "uniformface",
        "mean of 1/distance over all pairs",
        "uniformface",
        "near",
        None,
        None,
        UniformFaceEnergy,
    ),
    RegularizerRecipe(
        "mhe",
        "minimum hyperspherical energy, mean of 1/distanceˢ over all pairs",
        "mhe",
        "near",
        "s",
        2.0,
        HypersphericalEnergy,
    ),
)

#: Center regularizers by name.
REGULARIZERS: Mapping[str, RegularizerRecipe] = {recipe.name: recipe for recipe in _RECIPES}


def build_regularizer(
    name: str, lam: float | None = None, subset: int | None = None, seed: int = 0
) -> CenterRegularizer:
    """Build the center regularizer ``name``, called with centers (C, D) or (C, K, D).

    Args:
        name: Key of ``REGULARIZERS``.
        lam: Value of its constant (γ, λ, K or s); None for the default of the catalog.
        subset: Number of classes to draw per call, see :class:`CenterRegularizer`.
        seed: Seed of the draws.

    Raises:
        ValueError: If the name is unknown or a value is not accepted.

    Example:
        >>> import torch
        >>> regularizer = build_regularizer("r2-far", lam=8.0)
        >>> centers = torch.eye(3, 4, requires_grad=True)
        >>> regularizer(centers)
        tensor(-1.4142, grad_fn=<NegBackward0>)
    """
    if name not in REGULARIZERS:
        raise ValueError(f"name must be one of {', '.join(REGULARIZERS)}, got {name!r}")
    recipe = REGULARIZERS[name]
    if recipe.lam is None:
        if lam is not None:
            raise ValueError(f"lam must be None for {name}, which has no constant, got {lam}")
        return recipe.make(subset=subset, seed=seed)
    return recipe.make(recipe.lam if lam is None else lam, subset=subset, seed=seed)
