"""GSP on learned keys: the transport selects the positions that match the image's query."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import affine, layer_norm
from sumpool.pooling.base import (
    FORMATS_1D,
    FORMATS_2D,
    GlobalPool,
    Pooled,
    equal_weights,
    zero_invalid,
)
from sumpool.pooling.generalized_mean import LEAST, LEAST_EXPONENT, above_least, generalized_mean
from sumpool.transport import Solver, partial_transport
from sumpool.transport.exact import Exact
from sumpool.transport.fused.limits import MAX_FEATURES, feature_support, use_fused
from sumpool.transport.plain import weighted_sum
from sumpool.transport.solve import resolve_solver
from sumpool.transport.validation import (
    check_at_least_one,
    check_eps,
    check_mu,
    check_one_of,
    check_positive,
    solve_dtype,
)

#: Default number of queries and inverse smoothing ε.
QUERIES, EPS = 1, 1.0
#: Accepted values of ``start`` and ``values``; the first of each is the default.
STARTS = ("equal", "random", "identity")
VALUES = ("features", "normalized")


class _KeyedSumPool(GlobalPool):
    pool_type = "gsp-keys"
    has_attributes = True

    def __init__(
        self,
        channels: int,
        prototypes: int = QUERIES,
        mu: float = 0.3,
        eps: float = EPS,
        gamma: float = 3.0,
        start: str = STARTS[0],
        values: str = VALUES[0],
        *,
        learn_gamma: bool = True,
        hidden: int | None = None,
        solver: str | Solver = "exact",
        fused: bool | None = None,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, prototypes=prototypes)
        check_mu(mu)
        check_eps(eps)
        check_positive(gamma=gamma)
        check_one_of(STARTS, start=start)
        check_one_of(VALUES, values=values)
        if hidden is not None:
            check_at_least_one(hidden=hidden)
            if start != STARTS[0]:
                raise ValueError(f"start must be {STARTS[0]!r} with hidden, got {start!r}")
        resolve_solver(solver)
        self.channels, self.start, self.values = channels, start, values
        self.mu, self.eps, self.solver, self.fused = float(mu), float(eps), solver, fused
        self._gamma = float(gamma)
        self.gamma: float | nn.Parameter = self._gamma
        if learn_gamma:
            self.gamma = nn.Parameter(torch.full((), self._gamma, device=device, dtype=dtype))
        self.norm: nn.LayerNorm | None = None
        if hidden is None or values == "normalized":
            self.norm = nn.LayerNorm(channels, eps=1e-6, device=device, dtype=dtype)
        self.query: nn.Linear | None = None
        if hidden is None:
            self.query = nn.Linear(channels, channels, bias=False, device=device, dtype=dtype)
        size = hidden or channels
        self.key = nn.Linear(channels, size, bias=bool(hidden), device=device, dtype=dtype)
        self.prototypes = nn.Parameter(torch.empty(prototypes, size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialize the projections and the prototypes, a single one with 0; reset γ."""
        for layer in (self.norm, self.query, self.key):
            if layer is not None:
                layer.reset_parameters()
        if self.query is not None and self.start == "identity":
            nn.init.eye_(self.query.weight)
            nn.init.eye_(self.key.weight)
        elif self.query is not None and self.start == "equal":
            nn.init.zeros_(self.key.weight)
        with torch.no_grad():
            if isinstance(self.gamma, Tensor):
                self.gamma.fill_(self._gamma)
            # A single prototype starts at 0, so that the query depends on the image alone.
            self.prototypes.normal_() if len(self.prototypes) > 1 else self.prototypes.zero_()

    @property
    def linear(self) -> bool:
        """Whether the pooled vector is a weighted sum: γ is fixed at 1."""
        return not isinstance(self.gamma, Tensor) and self.gamma == 1

    def costs(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Costs (B, n, m) of ``features`` (B, n, C)."""
        if self.query is None:
            return -(affine(self.key, features).relu() @ self.prototypes.to(features.dtype).T)
        query = affine(self.query, weighted_sum(equal_weights(features, mask), features))
        queries = query.unsqueeze(1) + self.prototypes.to(query.dtype)  # (B, m, C)
        assert self.norm is not None
        # Queries in the space of the features: one product per image instead of one per position.
        asked = queries @ self.key.weight.to(query.dtype)
        return -(layer_norm(self.norm, features) @ asked.mT) / math.sqrt(features.shape[-1])

    def summands(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the values to be pooled from ``features`` (B, n, C), positive unless linear."""
        if self.values == "features":
            return features if self.linear else features.clamp(min=LEAST)
        assert self.norm is not None
        values = layer_norm(self.norm, features)
        return zero_invalid(values, mask) if self.linear else above_least(values, mask)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Power mean of ``features`` (B, n, C) under the weights of the transport."""
        if use_fused(self.fused, features, lambda: self.fused_support(features, mask)):
            return self._pool_fused(features, details)
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.key.weight))
            local = zero_invalid(local, mask)
            cost = self.costs(local, mask)
            result = partial_transport(cost, self.mu, self.eps, mask=mask, solver=self.solver)
            values = self.summands(local, mask)
            if self.linear:
                embedding = weighted_sum(result.weights, values)
            else:
                embedding = generalized_mean(values, self.gamma, mask, LEAST / 2, result.weights)
        attributes = result.attributes if details else None
        return Pooled(embedding.to(features.dtype), result.weights, attributes)

    def fused_support(self, features: Tensor, mask: Tensor | None = None) -> str | None:
        """Return why the fused kernels cannot pool ``features`` (B, n, C), or None if they can.

        Besides the dtypes and devices of :func:`~sumpool.transport.fused_support`, they require one
        query per image, features as values, the exact solver and no mask.
        """
        if self.query is None or len(self.prototypes) > 1 or self.values != "features":
            return "they are for one prototype, values 'features' and no hidden units"
        if self.linear:
            return "gamma is 1 and not learned: a weighted sum"
        if mask is not None:
            return "there is a mask"
        if torch.compiler.is_compiling():
            return "the layer is being compiled"
        if self.key.weight.dtype != torch.float32:
            return f"parameters are {self.key.weight.dtype}, not float32"
        if not isinstance(resolve_solver(self.solver), Exact):
            return "the solver is not exact"
        if not len(features):
            return "there is no image"
        if features.shape[1] > MAX_FEATURES:
            return f"there are {features.shape[1]} features, more than {MAX_FEATURES}"
        return feature_support(features)

    def _pool_fused(self, features: Tensor, details: bool) -> Pooled:
        from sumpool.transport.fused.keyed_ops import KeyedPowerMean

        norm = self.norm
        assert self.query is not None
        assert norm is not None
        gamma: float | Tensor = self.gamma
        if not isinstance(gamma, Tensor):
            gamma = self.key.weight.new_full((), gamma)
        with torch.autocast(features.device.type, enabled=False):
            embedding, weights = KeyedPowerMean.apply(
                features, self.query.weight, self.prototypes, self.key.weight, norm.weight,
                norm.bias, norm.eps, gamma, LEAST_EXPONENT, self.mu, self.eps,
            )  # fmt: skip
        # A single prototype receives all of the pooled mass.
        attributes = weights.new_ones(len(features), 1) if details else None
        return Pooled(embedding, weights, attributes)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return (
            f"{self.channels}, prototypes={len(self.prototypes)}, mu={self.mu}, eps={self.eps}, "
            f"gamma={float(self.gamma)}, start={self.start!r}, values={self.values!r}, "
            f"input_fmt={self.input_fmt!r}"
        )


class KeyedSumPool2d(_KeyedSumPool):
    r"""Generalized sum pooling of maps on learned keys, selected by a query of the image.

    The query is the projected mean of the local features plus a prototype, and the share μ of the
    positions whose keys match best is pooled. With normalized features v_j = LN(f_j),

    .. math::
        q_i = W_q \frac1n \sum_j f_j + ω_i, \qquad c_{ji} = -\frac{(W_k v_j)^⊤ q_i}{\sqrt C},

    the weights p solve the transport of :func:`~sumpool.transport.partial_transport` for these
    costs, and

    .. math::
        g_c = \Big(\sum_j p_j \max(f_{jc}, 10^{-6})^γ\Big)^{1/γ} ,

    with γ learned. μ = 1 is the power mean and, with a fixed γ = 1, average pooling. W_k starts at
    0, where all weights are 1/n: the layer starts as :class:`GeneralizedMeanPool2d` with the
    exponent γ, derivatives included, and learns to select.

    With ``values="normalized"``, :math:`v_{jc} - \min_{ic} v_{ic} + 10^{-6}` is pooled instead of
    the features, or v itself at a fixed γ = 1. With one prototype, ε = 1 and μ → 0 this is SimPool
    [simpool], whose attention is not bounded by a share. Normalization discards the norms of the
    features, which tell what matters, so that the layer starts far below the network's accuracy.

    With ``hidden``, there is no query: as in DeLF [delf], two layers score each position on its
    own, and the transport bounds the share that a score can give a position,

    .. math::
        c_{ji} = -ω_i^⊤ \operatorname{relu}(W_k f_j + b).

    Here, too, a single ω starts at 0, where all weights are 1/n.

    Args:
        channels: Channels C of the maps.
        prototypes: Number m of prototypes ω; a single one starts at 0.
        mu: Share μ in (0, 1] of each image that is pooled; no weight exceeds 1/(n μ).
        eps: Inverse smoothing ε > 0.
        gamma: Exponent γ > 0 of the power mean, initially if learned; a fixed 1 is a weighted sum.
        start: Initialization of W_q and W_k: "equal" sets W_k = 0, so that all weights are equal,
            "random" makes them nearly equal, and "identity" favors positions similar to the mean.
        values: Whether to pool the "features" f or the "normalized" features v.
        learn_gamma: Whether the exponent is learned.
        hidden: Hidden units of the score that replaces queries and keys; None uses queries.
        solver: As in :class:`GeneralizedSumPool2d`.
        fused: Whether to run the fused CUDA kernels, which have first derivatives only; None runs
            them where supported (one prototype, features as values, no mask).
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = KeyedSumPool2d(8).pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]), torch.Size([2, 1]))
    """

    _formats = FORMATS_2D


class KeyedSumPool1d(_KeyedSumPool):
    """GSP on learned keys of token sequences; arguments as in :class:`KeyedSumPool2d`."""

    _formats = FORMATS_1D
