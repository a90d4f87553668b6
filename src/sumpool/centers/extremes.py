"""Regularizers on the K nearest or farthest centers of each center, without smoothing."""

from __future__ import annotations

from torch import Tensor

from sumpool.centers.arguments import check_integer
from sumpool.centers.means import extreme_mean
from sumpool.centers.pairs import Extreme, distance
from sumpool.centers.regularizer import CenterRegularizer, check_kind


class SkewedRegularizer(CenterRegularizer):
    r"""Minus the mean distance of a center to its K nearest, or farthest, of other classes.

    .. math:: -\operatorname{mean}_i M_{[\pm K]}\{d_{ij} : j \ne i\}

    with M the K-skewed mean [skew, Eq. 5] and d the distance of the unit centers. R1 and R2 are
    smooth versions.

    Args:
        k: K ≥ 1, at most the number of centers of other classes; with a subset, of the drawn
            ones.
        pairs: "near" or "far".
        subset, seed: As in :class:`CenterRegularizer`.

    Example:
        >>> import torch
        >>> centers = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> SkewedRegularizer(k=1)(centers)
        tensor(-1.8047)
    """

    shown = ("k", "pairs")

    def __init__(
        self, k: int = 8, *, pairs: Extreme = "far", subset: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(subset, seed)
        self.k = check_integer("k", k, "an integer of at least 1", lambda it: it >= 1)
        check_kind("distance", pairs)
        self.pairs = pairs

    def check_size(self, classes: int, each: int) -> None:
        """Raise a ValueError if there are fewer than K centers of other classes."""
        if (classes - 1) * each < self.k:
            raise ValueError(
                f"k must be at most the {(classes - 1) * each} centers of other classes that "
                f"a center is compared with, got {self.k}"
            )

    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """Return minus the mean of the K smallest or largest distances of each row."""
        k = self.k if self.pairs == "far" else -self.k
        return -extreme_mean(distance(cosine), k, -1, counts)
