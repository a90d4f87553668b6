"""Contribution of each position to an embedding, for poolings that are sums over positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.models import Embedder
from sumpool.pooling import GlobalPool
from sumpool.pooling.affine import affine, layer_norm
from sumpool.pooling.generalized_mean import LEAST, above_least, generalized_mean
from sumpool.pooling.maximum import maximum
from sumpool.search.queries import QueryError
from sumpool.transport import sum_pool

#: Minimum cosine similarity of the summed contributions and the pooled vector.
_AGREEMENT = 1 - 1e-6


class _Pooled(NamedTuple):
    """Inputs and outputs of a pooling for one image."""

    x: Tensor  #: input of the pooling
    mask: Tensor | None  #: (1, n)
    f: Tensor  #: local features (1, n, C), 0 where the mask is False
    w: Tensor  #: weights (1, n, 1)
    v: Tensor  #: the pooled vector (1, C')


#: Computes the contributions (1, n, C') to the pooled vector, up to a factor.
_Rule = Callable[[Any, _Pooled], Tensor]


def _weighted(_: Any, it: _Pooled) -> Tensor:
    return it.w * it.f


def _channels_apart(pooling: Any, it: _Pooled) -> Tensor:
    # v_c is homogeneous of degree 1 in the values of channel c alone: v_c = Σ_j f_jc ∂v_c/∂f_jc.
    return _by_gradient(lambda f: pooling.pool_tokens(f, it.mask, False).embedding, it.f)


def _scaled_channels(pooling: Any, it: _Pooled) -> Tensor:
    # v_c = r_c Σ_j w_j f_jc, with a factor r_c per channel.
    shares = it.w * (it.f.relu() if pooling.pool_type == "crow" else it.f)
    total = shares.sum(1, keepdim=True)
    return shares * torch.where(total != 0, it.v.unsqueeze(1) / total, 0)


def _equalized(pooling: Any, it: _Pooled) -> Tensor:
    f = it.f.double()  # (F Fᵀ + λ I) α = 1; masked positions are 0 and add nothing
    gram = f @ f.mT + pooling.ridge * torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
    alpha: Tensor = torch.linalg.solve(gram, torch.ones_like(f[..., :1]))
    return alpha * f


def _smoothed(pooling: Any, it: _Pooled) -> Tensor:
    maps = it.x if pooling.input_fmt == "NCHW" else it.x.permute(0, 3, 1, 2)
    size = pooling.kernel_size
    smooth = F.avg_pool2d(maps, size, 1, size // 2, count_include_pad=False)
    local = pooling.reduce(smooth.flatten(2).mT)
    return it.w * (F.normalize(local, dim=-1) if pooling.normalize_local else local)


def _transported(pooling: Any, it: _Pooled) -> Tensor:
    local = pooling.map(it.f)  # (1, n, d)
    plan = pooling.assignments(local, it.mask)  # (1, n, m)
    parts: Tensor = plan.unsqueeze(-1) * local.unsqueeze(-2)
    return parts.flatten(2)


def _maximum_and_sum(pooling: Any, it: _Pooled) -> Tensor:
    strongest = _by_gradient(lambda f: maximum(f, it.mask), it.f)
    mapped: Tensor = pooling.map(strongest + it.w * it.f)
    return mapped


def _mean_of_weighed(pooling: Any, it: _Pooled) -> Tensor:
    powers = pooling.weigh == "powers"
    count = it.f.shape[1] if it.mask is None else int(it.mask.sum())
    weights = it.w.squeeze(-1) if powers else None
    mapped: Tensor = pooling.map(
        _by_gradient(
            lambda f: generalized_mean(f, pooling.p, it.mask, pooling.floor, weights),
            it.f if powers else count * it.w * it.f,
        )
    )
    return mapped


def _power_mean(pooling: Any, it: _Pooled) -> Tensor:
    # Channels are pooled separately, after the layer norm and a shift above the least value.
    return _weighted_power_mean(
        pooling.gamma, it, above_least(layer_norm(pooling.norm, it.f), it.mask)
    )


def _keyed(pooling: Any, it: _Pooled) -> Tensor:
    values = pooling.summands(it.f, it.mask)
    return it.w * values if pooling.linear else _weighted_power_mean(pooling.gamma, it, values)


def _weighted_power_mean(gamma: float | Tensor, it: _Pooled, values: Tensor) -> Tensor:
    weights = it.w.squeeze(-1)
    return _by_gradient(lambda x: generalized_mean(x, gamma, it.mask, LEAST / 2, weights), values)


def _heads(pooling: Any, it: _Pooled) -> Tensor:
    share = 1.0 if pooling.averaging else pooling.mu
    parts = []
    for local, prototypes in pooling.split(it.f):
        found = sum_pool(local, prototypes, share, pooling.eps, mask=it.mask, solver=pooling.solver)
        parts.append(found.weights.unsqueeze(-1) * local)
    return torch.cat(parts, -1)


def _probed(pooling: Any, it: _Pooled) -> Tensor:
    attention = pooling.attention(it.f, it.mask)  # (1, M, n)
    values = affine(pooling.value, it.f).unflatten(-1, (attention.shape[1], -1))  # (1, n, M, C/M)
    parts: Tensor = attention.mT.unsqueeze(-1) * values
    return parts.flatten(2)


def _clustered(pooling: Any, it: _Pooled) -> Tensor:
    plan, values = pooling.plan_and_values(it.f, it.mask)  # (1, n, m), (1, n, l)
    return _normalized_sums(plan.exp().unsqueeze(-1) * values.unsqueeze(-2)).flatten(2)


def _in_parts(pooling: Any, it: _Pooled) -> Tensor:
    local = pooling.mapped(it.f)
    plan = it.w * pooling.gsp.transport(local, it.mask).assignment()  # (1, n, m)
    residuals = local.unsqueeze(-2) - pooling.prototypes  # (1, n, m, d)
    parts = _normalized_sums(plan.unsqueeze(-1) * residuals).flatten(2)
    if pooling.with_sum:
        parts = torch.cat((parts, _normalized_sums(it.w * it.f)), -1)
    return affine(pooling.project, parts)


def _normalized_sums(parts: Tensor) -> Tensor:
    """Scale ``parts`` (1, n, …, d) so that their sum over n has norm 1."""
    lengths: Tensor = parts.sum(1, keepdim=True).norm(dim=-1, keepdim=True)
    return parts / lengths.clamp_min(1e-12)


_RULES: dict[str, _Rule] = {
    "gap": _weighted,
    "gsp": _weighted,
    "delf": _weighted,
    "gmp": _channels_apart,
    "gap+gmp": _channels_apart,
    "gemean": _channels_apart,
    "weldon": _channels_apart,
    "crow": _scaled_channels,
    "cbam": _scaled_channels,
    "gemax": _equalized,
    "t-smk": _smoothed,
    "otp": _transported,
    "gmp+gsp": _maximum_and_sum,
    "gemean+gsp": _mean_of_weighed,
    "simpool": _power_mean,
    "gsp-keys": _keyed,
    "gsp-heads": _heads,
    "gsp-parts": _in_parts,
    "efficient-probing": _probed,
    "salad": _clustered,
}


def can_explain(pooling: GlobalPool) -> bool:
    """Whether the pooled vector is a sum of contributions of the positions."""
    return pooling.pool_type in _RULES


def contributions(model: Embedder, features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the contribution of each position to the embedding before normalization.

    For a weighted sum, these are the weighted local features. If channels are pooled separately
    (maximum, generalized mean), a position contributes its share of each channel. If parts of the
    vector are normalized separately (GSP in parts, SALAD), it contributes its share of each part.

    Args:
        model: The model, in evaluation mode.
        features: Local features of one image, as returned by :meth:`Embedder.feature_map`.
        mask: Positions that are pooled; None for all.

    Returns:
        A tensor (n, D) in float64 whose sum over positions is the embedding, up to a factor.

    Raises:
        QueryError: If the pooling is not such a sum; the message lists those that are.
    """
    pooling = model.pooling
    if not can_explain(pooling):
        raise QueryError(
            f"the pooling {pooling.pool_type} is not a sum over positions, so a match cannot be "
            f"split over them; {', '.join(_RULES)} are"
        )
    with torch.no_grad():
        pooled = pooling.pool(features, mask)
        tokens = pooling.to_tokens(features)[0]
        flat = None if mask is None else mask.flatten(1)
        if flat is not None:
            tokens = tokens.masked_fill(~flat.unsqueeze(-1), 0)
        assert pooled.weights is not None
        weights = pooled.weights.flatten(1).unsqueeze(-1)
        seen = _Pooled(features, flat, tokens, weights, pooled.embedding)
        parts = _RULES[pooling.pool_type](pooling, seen)[0].double()
        total = parts.sum(0)
        if F.cosine_similarity(total, pooled.embedding[0].double(), dim=0) < _AGREEMENT:
            raise QueryError(
                f"with these options the pooling {pooling.pool_type} is not a sum over positions, "
                "so a match cannot be split over them"
            )
        if pooling.linear_map == "after":
            (matrix,) = model.map.parameters()
            parts = parts @ matrix.double().T
    return parts


@torch.enable_grad()
def _by_gradient(pool: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Multiply each value by the derivative of its channel, (1, n, C)."""
    values = values.detach().requires_grad_()
    (slopes,) = torch.autograd.grad(pool(values).sum(), values)
    return (values * slopes).detach()
