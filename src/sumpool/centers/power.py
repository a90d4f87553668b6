"""R2: the power mean of the similarities of all pairs."""

from __future__ import annotations

from torch import Tensor

from sumpool.centers.arguments import check_number
from sumpool.centers.means import smooth_mean
from sumpool.centers.pairs import Comparison, Extreme, log_distance, log_similarity
from sumpool.centers.regularizer import CenterRegularizer, check_kind


class PowerRegularizer(CenterRegularizer):
    r"""R2, the power mean of the similarities, or of the distances, of all pairs [skew, Eq. 8–10].

    With :math:`g_\lambda` the power mean over pairs of different classes, t = (1 + s)/2 for the
    cosine s, and d the distance of the unit centers:

    * cosine, near: :math:`R_2 = g_\lambda(t) = (\operatorname{mean} t^\lambda)^{1/\lambda}`
    * cosine, far: :math:`g_{-\lambda}(t)`
    * distance, near: :math:`(\operatorname{mean} d^{-\lambda})^{1/\lambda} = 1/g_{-\lambda}(d)`
    * distance, far: :math:`-g_\lambda(d)`, which maximizes the power mean of distances

    At λ = 1 the third is the energy of [uniformface]; raised to the power λ, it is that of [mhe].
    On a sphere the fourth is minimal for evenly spread centers if λ < 2, and for two opposite
    poles, where classes share a center, if λ > 2 [bjorck56].

    Args:
        lam: λ ≥ 0, the weight of the extreme pairs; inf for the most extreme pair alone.
        on: Comparison of pairs, "cosine" or "distance".
        pairs: Pairs with the largest weight, "near" or "far".
        subset, seed: As in :class:`CenterRegularizer`.

    Example:
        >>> import torch
        >>> centers = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> PowerRegularizer(lam=2.0, on="distance")(centers)
        tensor(0.5000)
        >>> PowerRegularizer(lam=2.0, on="distance", pairs="far")(centers)
        tensor(-2.)
    """

    shown = ("lam", "on", "pairs")

    def __init__(
        self,
        lam: float = 32.0,
        *,
        on: Comparison = "cosine",
        pairs: Extreme = "near",
        subset: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(subset, seed)
        self.lam = check_number("lam", lam, "a number of at least 0, or inf", lambda it: it >= 0)
        check_kind(on, pairs)
        self.on, self.pairs = on, pairs

    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """Return the log-exp mean of the logarithms of each row."""
        logs = log_similarity(cosine) if self.on == "cosine" else log_distance(cosine)
        return smooth_mean(logs, self._exponent(), -1, counts)

    def combine(self, rows: Tensor, classes: int, each: int) -> Tensor:
        """Return the power mean over all pairs; all rows have the same number of pairs."""
        log_mean = smooth_mean(rows, self._exponent(), -1)
        if self.on == "cosine":
            return log_mean.exp()
        return (-log_mean).exp() if self.pairs == "near" else -log_mean.exp()

    def _exponent(self) -> float:
        return self.lam if (self.on == "cosine") == (self.pairs == "near") else -self.lam
