"""The centre regularisers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sumpool.centers.energy import HypersphericalEnergy, UniformFaceEnergy
from sumpool.centers.extremes import SkewedRegularizer
from sumpool.centers.log_exp import LogExpRegularizer
from sumpool.centers.pairs import Comparison, End
from sumpool.centers.power import PowerRegularizer
from sumpool.centers.regularizer import CenterRegularizer

#: From λ, a subset and a seed to a regulariser.
Maker = Callable[[float, int | None, int], CenterRegularizer]


@dataclass(frozen=True)
class RegularizerRecipe:
    """One entry of the catalog.

    Attributes:
        name: Its key in ``REGULARIZERS``.
        summary: What is made small, in a line.
        reference: Its key in docs/references.md.
        pairs: Which pairs count most, "near" or "far".
        symbol: The letter of its one constant, that ``lam`` sets; None where it has none.
        lam: The value that constant has unless it is given.
        make: From a value of the constant, a subset and a seed to the module.
    """

    name: str
    summary: str
    reference: str
    pairs: End
    symbol: str | None
    lam: float | None
    make: Maker


def _log_exp(on: Comparison, pairs: End) -> Maker:
    def make(lam: float, subset: int | None, seed: int) -> CenterRegularizer:
        return LogExpRegularizer(lam, on=on, pairs=pairs, subset=subset, seed=seed)

    return make


def _power(on: Comparison, pairs: End) -> Maker:
    def make(lam: float, subset: int | None, seed: int) -> CenterRegularizer:
        return PowerRegularizer(lam, on=on, pairs=pairs, subset=subset, seed=seed)

    return make


def _skewed(pairs: End) -> Maker:
    def make(lam: float, subset: int | None, seed: int) -> CenterRegularizer:
        # A configuration file may well write 8.0; anything else that is not whole raises.
        k = int(lam) if isinstance(lam, float) and lam.is_integer() else lam
        return SkewedRegularizer(k, pairs=pairs, subset=subset, seed=seed)  # type: ignore[arg-type]

    return make


def _mhe(lam: float, subset: int | None, seed: int) -> CenterRegularizer:
    return HypersphericalEnergy(lam, subset=subset, seed=seed)


def _uniformface(lam: float, subset: int | None, seed: int) -> CenterRegularizer:
    return UniformFaceEnergy(subset=subset, seed=seed)


_RECIPES = (
    RegularizerRecipe(
        "r1",
        "log-exp mean of the cosines of a centre",
        "skew",
        "near",
        "γ",
        32.0,
        _log_exp("cosine", "near"),
    ),
    RegularizerRecipe(
        "r1-distance",
        "log-exp mean of minus the distances of a centre",
        "skew",
        "near",
        "γ",
        32.0,
        _log_exp("distance", "near"),
    ),
    RegularizerRecipe(
        "r1-far",
        "minus the log-exp mean of the distances of a centre",
        "skew",
        "far",
        "γ",
        1.0,
        _log_exp("distance", "far"),
    ),
    RegularizerRecipe(
        "r2",
        "power mean of (1 + cosine)/2 over all pairs",
        "skew",
        "near",
        "λ",
        32.0,
        _power("cosine", "near"),
    ),
    RegularizerRecipe(
        "r2-distance",
        "power mean of 1/distance over all pairs",
        "skew",
        "near",
        "λ",
        32.0,
        _power("distance", "near"),
    ),
    RegularizerRecipe(
        "r2-far",
        "minus the power mean of the distances of all pairs",
        "skew",
        "far",
        "λ",
        1.0,
        _power("distance", "far"),
    ),
    RegularizerRecipe(
        "k-near",
        "minus the mean distance of a centre to its K nearest",
        "skew",
        "near",
        "K",
        8.0,
        _skewed("near"),
    ),
    RegularizerRecipe(
        "k-far",
        "minus the mean distance of a centre to its K farthest",
        "skew",
        "far",
        "K",
        8.0,
        _skewed("far"),
    ),
    RegularizerRecipe(
        "uniformface",
        "mean of 1/distance over all pairs",
        "uniformface",
        "near",
        None,
        None,
        _uniformface,
    ),
    RegularizerRecipe(
        "mhe",
        "minimum hyperspherical energy, mean of 1/distanceˢ over all pairs",
        "mhe",
        "near",
        "s",
        2.0,
        _mhe,
    ),
)

#: The centre regularisers by name.
REGULARIZERS: Mapping[str, RegularizerRecipe] = {recipe.name: recipe for recipe in _RECIPES}


def build_regularizer(
    name: str, lam: float | None = None, subset: int | None = None, seed: int = 0
) -> CenterRegularizer:
    """The centre regulariser ``name``, called with centres (C, D) or (C, K, D).

    Args:
        name: A key of ``REGULARIZERS``.
        lam: Its one constant (γ, λ, K or s) instead of the catalog's.
        subset: Classes to draw in a call, see :class:`CenterRegularizer`.
        seed: Where the draws start.

    Raises:
        ValueError: If there is no such regulariser, or it takes no such value.

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
        return recipe.make(0.0, subset, seed)
    return recipe.make(recipe.lam if lam is None else lam, subset, seed)
