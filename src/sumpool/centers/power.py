"""R2: the power mean of the similarities of all pairs."""

from __future__ import annotations

from torch import Tensor

from sumpool.centers.arguments import check_number
from sumpool.centers.means import smooth_mean
from sumpool.centers.pairs import Comparison, End, log_distance, log_similarity
from sumpool.centers.regularizer import CenterRegularizer, check_kind


class PowerRegularizer(CenterRegularizer):
    r"""R2, the power mean of the similarities, or of the distances, of all pairs [skew, Eq. 8–10].

    With :math:`g_\lambda` the power mean over pairs of different classes, t = (1 + s)/2 for the
    cosine s, and d the distance of the unit centers:

    * cosine, near: :math:`R_2 = g_\lambda(t) = (\operatorname{mean} t^\lambda)^{1/\lambda}`
    * cosine, far: :math:`g_{-\lambda}(t)`
    * distance, near: :math:`(\operatorname{mean} d^{-\lambda})^{1/\lambda} = 1/g_{-\lambda}(d)`
    * distance, far: :math:`-g_\lambda(d)`, the power mean of distances to be made large

    At λ = 1 the third is the energy of [uniformface]; its power λ is that of [mhe]. On a sphere the
    fourth is smallest for evenly spread centers while λ < 2, and for two opposite poles, at
    which classes share a center, when λ > 2 [bjorck56].

    Args:
        lam: λ ≥ 0, how far the mean leans to its end; inf for the extreme pair alone.
        on: What pairs are compared by, "cosine" or "distance".
        pairs: Which pairs count most, "near" or "far".
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
        pairs: End = "near",
        subset: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(subset, seed)
        check_number("lam", lam, "a number of at least 0, or inf", lam >= 0)
        check_kind(on, pairs)
        self.lam, self.on, self.pairs = lam, on, pairs

    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """The log-exp mean of the logarithms of a row."""
        logs = log_similarity(cosine) if self.on == "cosine" else log_distance(cosine)
        return smooth_mean(logs, self._exponent(), -1, counts)

    def combine(self, rows: Tensor, classes: int, each: int) -> Tensor:
        """The power mean over all pairs: every row has the same number of them."""
        log_mean = smooth_mean(rows, self._exponent(), -1)
        if self.on == "cosine":
            return log_mean.exp()
        return (-log_mean).exp() if self.pairs == "near" else -log_mean.exp()

    def _exponent(self) -> float:
        return self.lam if (self.on == "cosine") == (self.pairs == "near") else -self.lam
