"""Hyperspherical energies of centers."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from sumpool.centers.arguments import check_number
from sumpool.centers.pairs import log_distance
from sumpool.centers.regularizer import CenterRegularizer

#: Keeps the gradient of coinciding centers, whose distance counts as 7e-4 in float32, finite.
LARGEST_POWER = 8.0


class HypersphericalEnergy(CenterRegularizer):
    r"""Hyperspherical energy of class centers, to be minimized [mhe].

    .. math:: E_s = \sum_{i\ne j} d_{ij}^{-s} \quad (s > 0), \qquad E_0 = -\sum_{i\ne j}\log d_{ij}

    over ordered pairs of different classes, with d the distance of the unit centers. As in [mhe],
    the regularizer is divided by the number of pairs; ``reduction="sum"`` returns E itself. With a
    subset, the sum is scaled to all pairs.

    Args:
        power: Exponent s ≥ 0, at most 8.
        reduction: "mean" or "sum".
        subset, seed: As in :class:`CenterRegularizer`.

    Example:
        >>> import torch
        >>> centers = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> HypersphericalEnergy(power=2.0, reduction="sum")(centers)
        tensor(0.5000)
    """

    shown: ClassVar[tuple[str, ...]] = ("power", "reduction")

    def __init__(
        self,
        power: float = 2.0,
        *,
        reduction: Literal["mean", "sum"] = "mean",
        subset: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(subset, seed)
        accepted = f"a number from 0 to {LARGEST_POWER:g}"
        self.power = check_number("power", power, accepted, lambda it: 0 <= it <= LARGEST_POWER)
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction must be one of mean, sum, got {reduction!r}")
        self.reduction = reduction

    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """Return the mean energy of each row."""
        logs = log_distance(cosine).masked_fill(~counts, 0.0)
        energy = (-self.power * logs).exp() if self.power > 0 else -logs
        return energy.masked_fill(~counts, 0.0).sum(-1) / counts.sum(-1)

    def combine(self, rows: Tensor, classes: int, each: int) -> Tensor:
        """Average the rows; for the sum, multiply by the number of pairs."""
        pairs = classes * each * (classes - 1) * each
        return rows.mean() * (1 if self.reduction == "mean" else pairs)


class UniformFaceEnergy(HypersphericalEnergy):
    r"""The mean potential energy of class centers, to be minimized [uniformface].

    .. math:: \frac1{C(C-1)}\sum_{i\ne j}\frac1{d_{ij}}

    with d the distance of the unit centers. It equals the hyperspherical energy at s = 1, and R2 on
    distances at λ = 1.

    Args:
        subset, seed: As in :class:`CenterRegularizer`.

    Example:
        >>> import torch
        >>> UniformFaceEnergy()(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        tensor(0.5000)
    """

    shown = ()

    def __init__(self, subset: int | None = None, seed: int = 0) -> None:
        super().__init__(1.0, subset=subset, seed=seed)
