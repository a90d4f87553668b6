"""GSP on learned keys: the transport selects by what an image asks for."""

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
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.transport import Solver, partial_transport
from sumpool.transport.plain import weighted_sum
from sumpool.transport.solve import resolve_solver
from sumpool.transport.validation import (
    check_at_least_one,
    check_eps,
    check_mu,
    check_positive,
    solve_dtype,
)

#: Number of queries by default, and inverse smoothing ε.
QUERIES, EPS = 1, 1.0
#: What the least value counts as under a power mean.
LEAST = 1e-6
#: What the projections of queries and keys start as.
STARTS = ("random", "identity")


class _KeyedSumPool(GlobalPool):
    pool_type = "gsp-keys"
    has_attributes = True

    def __init__(
        self,
        channels: int,
        prototypes: int = QUERIES,
        mu: float = 0.3,
        eps: float = EPS,
        gamma: float = 2.0,
        start: str = "random",
        *,
        solver: str | Solver = "exact",
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
        if start not in STARTS:
            raise ValueError(f"start must be one of {STARTS}, got {start!r}")
        resolve_solver(solver)
        self.channels, self.start = channels, start
        self.mu, self.eps, self.gamma, self.solver = float(mu), float(eps), float(gamma), solver
        self.norm = nn.LayerNorm(channels, eps=1e-6, device=device, dtype=dtype)
        self.query = nn.Linear(channels, channels, bias=False, device=device, dtype=dtype)
        self.key = nn.Linear(channels, channels, bias=False, device=device, dtype=dtype)
        self.prototypes = nn.Parameter(
            torch.empty(prototypes, channels, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projections again, and the prototypes where there are several."""
        for layer in (self.norm, self.query, self.key):
            layer.reset_parameters()
        if self.start == "identity":
            nn.init.eye_(self.query.weight)
            nn.init.eye_(self.key.weight)
        with torch.no_grad():
            # One of them starts as what the image asks for alone.
            self.prototypes.normal_() if len(self.prototypes) > 1 else self.prototypes.zero_()

    def costs(self, features: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Costs (B, n, m) of ``features`` (B, n, C), of which ``values`` are the normalized."""
        query = affine(self.query, weighted_sum(equal_weights(features, mask), features))
        queries = query.unsqueeze(1) + self.prototypes.to(query.dtype)  # (B, m, C)
        return -(affine(self.key, values) @ queries.mT) / math.sqrt(values.shape[-1])

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """The power mean of ``features`` (B, n, C) under the weights of the transport."""
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.query.weight))
            local = zero_invalid(local, mask)
            values = layer_norm(self.norm, local)
            cost = self.costs(local, values, mask)
            result = partial_transport(cost, self.mu, self.eps, mask=mask, solver=self.solver)
            embedding = self._mean(values, mask, result.weights)
        attributes = result.attributes if details else None
        return Pooled(embedding.to(features.dtype), result.weights, attributes)

    def _mean(self, values: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:
        if self.gamma == 1:
            return weighted_sum(weights, zero_invalid(values, mask))
        valid = values if mask is None else values.masked_fill(~mask.unsqueeze(-1), math.inf)
        positive = values - valid.amin((1, 2), keepdim=True) + LEAST
        return generalized_mean(positive, self.gamma, mask, LEAST / 2, weights)

    def extra_repr(self) -> str:
        """What the layers below do not say, for ``print``."""
        return (
            f"{self.channels}, prototypes={len(self.prototypes)}, mu={self.mu}, eps={self.eps}, "
            f"gamma={self.gamma}, start={self.start!r}, input_fmt={self.input_fmt!r}"
        )


class KeyedSumPool2d(_KeyedSumPool):
    r"""Generalized sum pooling on learned keys, of maps: what the image asks for is kept.

    The mean of the local features asks, each prototype adds to the question, and the share μ of the
    positions whose keys answer best is pooled. With normalized features v_j = LN(f_j),

    .. math::
        q_i = W_q \frac1n \sum_j f_j + ω_i, \qquad c_{ji} = -\frac{(W_k v_j)^⊤ q_i}{\sqrt C},

    the weights p solve the transport of :func:`~sumpool.transport.partial_transport` for these
    costs, and

    .. math::
        g_c = \Big(\sum_j p_j (v_{jc} - \min_{ic} v_{ic} + 10^{-6})^γ\Big)^{1/γ} ,

    or the weighted sum Σ_j p_j v_j at γ = 1. With one prototype, ε = 1 and μ → 0 the weights are
    the attention of SimPool [simpool], which no share bounds; μ = 1 is the power mean, and with
    γ = 1 average pooling, of the normalized features.

    Args:
        channels: Channels C of the maps.
        prototypes: Number m of prototypes ω; a single one starts at 0.
        mu: Share μ in (0, 1] of each image that is pooled; no position has more than 1/(n μ).
        eps: Inverse smoothing ε > 0.
        gamma: Exponent γ > 0 of the power mean; 1 is a weighted sum.
        start: What W_q and W_k start as: "random", where all positions weigh nearly the same, or
            "identity", where those like the mean weigh most.
        solver: As in :class:`GeneralizedSumPool2d`.
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
