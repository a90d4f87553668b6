"""What each position adds to an embedding, for the poolings that are sums over positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.models import Embedder
from sumpool.pooling import GlobalPool
from sumpool.pooling.generalized_max import equalizing_weights
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.pooling.maximum import maximum
from sumpool.search.queries import QueryError

#: Least cosine between the sum of the contributions and what the pooling returned.
_AGREEMENT = 1 - 1e-6

#: From a pooling, its input x, the mask (1, n), local features (1, n, C) and weights (1, n, 1) to
#: the contributions (1, n, C'), up to a factor.
_Rule = Callable[[Any, Tensor, Tensor | None, Tensor, Tensor], Tensor]


def _weighted(_: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    return w * f


def _channels_apart(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    # g_c is homogeneous of degree 1 in the values of channel c alone: g_c = Σ_j f_jc ∂g_c/∂f_jc.
    return _by_gradient(lambda it: pooling.pool_tokens(it, mask, False).embedding, f)


def _scaled_channels(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    # g_c = r_c Σ_j w_j f_jc, with a factor for each channel.
    shares = w * (f.relu() if pooling.pool_type == "crow" else f)
    total = shares.sum(1, keepdim=True)
    factor = pooling.pool(x).embedding.unsqueeze(1) if mask is None else None
    if factor is None:
        factor = pooling.pool_tokens(f, mask).embedding.unsqueeze(1)
    return shares * torch.where(total != 0, factor / total, 0)


def _equalized(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    return equalizing_weights(f, pooling.ridge, mask).unsqueeze(-1) * f


def _smoothed(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    maps = x if pooling.input_fmt == "NCHW" else x.permute(0, 3, 1, 2)
    size = pooling.kernel_size
    smooth = F.avg_pool2d(maps, size, 1, size // 2, count_include_pad=False)
    local = pooling.reduce(smooth.flatten(2).mT)
    return w * (F.normalize(local, dim=-1) if pooling.normalize_local else local)


def _transported(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    local = pooling.map(f)  # (1, n, d)
    plan = pooling.assignments(local, mask)  # (1, n, m)
    parts: Tensor = math.sqrt(plan.shape[-1]) * plan.unsqueeze(-1) * local.unsqueeze(-2)
    return parts.flatten(2)


def _maximum_and_sum(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    strongest = _by_gradient(lambda it: maximum(it, mask), f)
    mapped: Tensor = pooling.map(strongest + w * f)
    return mapped


def _mean_of_weighed(pooling: Any, x: Tensor, mask: Tensor | None, f: Tensor, w: Tensor) -> Tensor:
    def mean(it: Tensor) -> Tensor:
        weights = w.squeeze(-1) if pooling.weigh == "powers" else None
        return generalized_mean(it, pooling.p, mask, pooling.floor, weights)

    count = f.shape[1] if mask is None else int(mask.sum())
    mapped: Tensor = pooling.map(
        _by_gradient(mean, f if pooling.weigh == "powers" else count * w * f)
    )
    return mapped


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
}


def can_explain(pooling: GlobalPool) -> bool:
    """Whether the pooled vector is a sum of what each position adds to it."""
    return pooling.pool_type in _RULES


def contributions(model: Embedder, features: Tensor, mask: Tensor | None = None) -> Tensor:
    """What each position adds to the embedding before normalization.

    Of a weighted sum, these are the weighted local features. Where every channel is pooled apart
    (maximum, generalized mean), a position adds its share in each channel.

    Args:
        model: The model, in evaluation mode.
        features: Local features of one image, as :meth:`Embedder.feature_map` gives them.
        mask: The positions that count.

    Returns:
        A tensor (n, D) in float64 whose sum over positions is the embedding, up to a factor.

    Raises:
        QueryError: If the pooling is no such sum; names those that are.
    """
    pooling = model.pooling
    if not can_explain(pooling):
        raise QueryError(
            f"the pooling {pooling.pool_type} is no sum over positions, so that a match cannot be "
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
        parts = _RULES[pooling.pool_type](pooling, features, flat, tokens, weights)[0].double()
        total = parts.sum(0)
        if F.cosine_similarity(total, pooled.embedding[0].double(), dim=0) < _AGREEMENT:
            raise QueryError(
                f"with these options the pooling {pooling.pool_type} is no sum over positions, so "
                "that a match cannot be split over them"
            )
        if pooling.linear_map == "after":
            (matrix,) = model.map.parameters()
            parts = parts @ matrix.double().T
    return parts


@torch.enable_grad()
def _by_gradient(pool: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Each value times the derivative of its channel, (1, n, C)."""
    values = values.detach().requires_grad_()
    (slopes,) = torch.autograd.grad(pool(values).sum(), values)
    return (values * slopes).detach()
