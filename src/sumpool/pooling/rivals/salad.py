"""SALAD: sums per cluster under a transport plan with a dustbin for the remaining mass."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import check_at_least_one, solve_dtype


def dustbin_transport(
    scores: Tensor, dustbin: Tensor, iterations: int = 3, mask: Tensor | None = None
) -> Tensor:
    r"""Logarithm of a transport plan to m clusters and a dustbin [salad, sec. 3.3].

    Each of the n features has mass 1, each cluster receives 1, and the dustbin the remaining n − m;
    if n ≤ m, nothing remains, and each cluster receives n/m. For scores s_{jk}, with s_{j,m+1} the
    score of the dustbin, Sinkhorn's scalings alternate in the log domain:

    .. math::
        φ_k = \log b_k - \log \sum_j e^{s_{jk} + ψ_j}, \qquad
        ψ_j = -\log \sum_k e^{s_{jk} + φ_k}, \qquad
        \log π_{jk} = s_{jk} + φ_k + ψ_j .

    The masses of the features hold exactly, those of the clusters in the limit of many iterations.

    Args:
        scores: Scores of shape (B, n, m), float32 or float64.
        dustbin: Score of the dustbin for all features, a scalar.
        iterations: Number of scalings of each side.
        mask: True for valid features, (B, n); n counts only these.

    Returns:
        log π of shape (B, n, m), without the dustbin; −∞ at invalid features.

    Example:
        >>> dustbin_transport(torch.zeros(1, 4, 1), torch.tensor(0.0)).exp().flatten()
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    n, m = scores.shape[1:]
    count = scores.new_full((1,), n) if mask is None else mask.sum(-1).to(scores.dtype)
    share = (count / m).clamp(max=1).log().unsqueeze(-1).expand(-1, m)
    left = (count - m).clamp_min(torch.finfo(scores.dtype).tiny).log().unsqueeze(-1)
    masses = torch.cat([share, left], 1)  # (B or 1, m + 1)
    plan = torch.cat([scores, dustbin.to(scores.dtype).expand(scores.shape[0], n, 1)], 2)
    invalid = None if mask is None else ~mask.unsqueeze(-1)
    for _ in range(iterations):
        valid = plan if invalid is None else plan.masked_fill(invalid, -math.inf)
        plan = plan + (masses - valid.logsumexp(1)).unsqueeze(1)  # φ replaces the previous one
        plan = plan - plan.logsumexp(2, keepdim=True)
    plan = plan[..., :m]
    return plan if invalid is None else plan.masked_fill(invalid, -math.inf)


class _SaladPool(GlobalPool):
    pool_type = "salad"

    def __init__(
        self,
        channels: int,
        clusters: int = 16,
        cluster_dim: int = 64,
        *,
        hidden: int = 512,
        iterations: int = 3,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(
            channels=channels,
            clusters=clusters,
            cluster_dim=cluster_dim,
            hidden=hidden,
            iterations=iterations,
        )
        self.channels = channels
        self.embedding_size = clusters * cluster_dim
        self.iterations = iterations
        self.feature_hidden = nn.Linear(channels, hidden, device=device, dtype=dtype)
        self.feature_layer = nn.Linear(hidden, cluster_dim, device=device, dtype=dtype)
        self.score_hidden = nn.Linear(channels, hidden, device=device, dtype=dtype)
        self.score_layer = nn.Linear(hidden, clusters, device=device, dtype=dtype)
        self.dustbin = nn.Parameter(torch.ones((), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Reinitialize the layers; set the dustbin's score to 1, as in the original."""
        super().reset_parameters()
        nn.init.ones_(self.dustbin)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Sum ``features`` (B, n, C) per cluster and normalize each sum."""
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.dustbin))
            local = zero_invalid(local, mask)
            plan, values = self.plan_and_values(local, mask)
            sums = F.normalize(plan.exp().mT @ values, dim=-1)  # (B, m, l)
            embedding = F.normalize(sums.flatten(1), dim=-1)
            # From logarithms, so that weights sum to 1 even if the dustbin takes everything.
            weights = plan.logsumexp(-1).softmax(-1) if details else None
        return Pooled(embedding.to(features.dtype), weights, None)

    def plan_and_values(self, local: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the logarithm of the plan (B, n, m) and the reduced features (B, n, l)."""
        values = affine(self.feature_layer, affine(self.feature_hidden, local).relu())
        scores = affine(self.score_layer, affine(self.score_hidden, local).relu())
        return dustbin_transport(scores, self.dustbin, self.iterations, mask), values

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"iterations={self.iterations}, input_fmt={self.input_fmt!r}"


class SaladPool2d(_SaladPool):
    r"""SALAD of maps [salad].

    A perceptron scores every local feature for m clusters; a transport plan π assigns one unit of
    mass to each cluster and the rest to a dustbin with a learned score
    (:func:`~sumpool.pooling.rivals.salad.dustbin_transport`); another perceptron reduces the
    features, which are summed per cluster and normalized:

    .. math::
        s_j = \operatorname{MLP}_s(f_j), \quad
        V_k = \sum_j π_{jk} \operatorname{MLP}_f(f_j), \quad
        g = \big[V_1/‖V_1‖, …, V_m/‖V_m‖\big] / ‖·‖ .

    The method is intended for n > m features: with n ≤ m the dustbin is empty and nothing is
    selected. The default 16 clusters of 64 channels suit the 49 positions of 7 × 7 maps; the
    original has 64 clusters of 128 channels on maps of 16 × 16 and more (``clusters=64,
    cluster_dim=128``). Its dropout of 0.3 in both perceptrons is omitted, and so is the class token
    it appends, which maps do not have. The weight of a position is the mass it sends to clusters,
    divided by the sum.

    Args:
        channels: Channels C of the maps.
        clusters: Number m of clusters, less than the number of positions.
        cluster_dim: Channels per cluster; the pooled vector has m times as many.
        hidden: Units of the hidden layers.
        iterations: Number of scalings of each side of the plan.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = SaladPool2d(32).pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 1024]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class SaladPool1d(_SaladPool):
    """SALAD of token sequences; arguments as in :class:`SaladPool2d`."""

    _formats = FORMATS_1D
