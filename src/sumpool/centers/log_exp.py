"""R1: the log-exp mean of the similarities of each center."""

from __future__ import annotations

import math

from torch import Tensor

from sumpool.centers.arguments import check_number
from sumpool.centers.means import smooth_mean
from sumpool.centers.pairs import Comparison, Extreme, distance
from sumpool.centers.regularizer import CenterRegularizer, check_kind


class LogExpRegularizer(CenterRegularizer):
    r"""R1, the mean over centers of the smooth maximum similarity to centers of other classes.

    .. math:: R_1 = \operatorname{mean}_i \frac1\gamma
        \log\sum_{j\ne i} e^{\gamma(s_{ij} - \delta)}

    [skew, Eq. 8], with the cosine as similarity s, or minus the distance of the unit centers.
    With ``pairs="far"`` γ changes its sign in both places: the smooth *minimum* similarity is
    minimized, which pushes distant centers farther apart. With a subset, the sum is scaled to all
    centers.

    Args:
        gamma: γ > 0, the weight of the largest term; inf for this term alone.
        on: Comparison of pairs, "cosine" or "distance".
        pairs: Pairs with the largest weight, "near" or "far".
        margin: δ, which shifts the value but not the gradient.
        subset, seed: As in :class:`CenterRegularizer`.

    Example:
        >>> import torch
        >>> centers = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> LogExpRegularizer(gamma=math.inf)(centers)
        tensor(0.)
        >>> LogExpRegularizer(gamma=math.inf, on="distance", pairs="far")(centers)
        tensor(-1.8047)
    """

    shown = ("gamma", "on", "pairs", "margin")

    def __init__(
        self,
        gamma: float = 32.0,
        *,
        on: Comparison = "cosine",
        pairs: Extreme = "near",
        margin: float = 0.0,
        subset: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(subset, seed)
        self.gamma = check_number("gamma", gamma, "a number above 0, or inf", lambda it: it > 0)
        self.margin = check_number("margin", margin, "a finite number", math.isfinite)
        check_kind(on, pairs)
        self.on, self.pairs = on, pairs

    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """Return the log-exp mean of the similarities of each row."""
        similarity = cosine if self.on == "cosine" else -distance(cosine)
        return smooth_mean(similarity, self._signed(), -1, counts)

    def combine(self, rows: Tensor, classes: int, each: int) -> Tensor:
        """Average the rows, then convert from the mean of powers to their sum and subtract δ."""
        return rows.mean() + math.log((classes - 1) * each) / self._signed() - self.margin

    def _signed(self) -> float:
        return self.gamma if self.pairs == "near" else -self.gamma
