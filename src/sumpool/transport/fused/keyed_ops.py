"""GSP on keys with one query per image, forward and backward, through the kernels."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from sumpool.transport.fused import keyed
from sumpool.transport.fused.launch import Kernel
from sumpool.transport.fused.ops import on_device_of

_SCORE_TILE = Kernel(keyed.score_tile)
_WEIGH_IMAGE = Kernel(keyed.weigh_image)
_POWER_MEAN = Kernel(keyed.power_mean)
_SHARE_TILE = Kernel(keyed.share_tile)
_SCORE_GRADIENT = Kernel(keyed.score_gradient)
_QUERY_GRADIENT = Kernel(keyed.query_gradient)
_FEATURE_GRADIENT = Kernel(keyed.feature_gradient)

#: Positions and channels of a tile, for sums over channels and for sums over positions.
ALONG_CHANNELS, ALONG_POSITIONS = (16, 256), (64, 32)
WARPS = 4


def _warps(every: int) -> int:
    """Warps of a program that holds all positions of an image."""
    return WARPS if every <= 2048 else 2 * WARPS


class KeyedPowerMean(torch.autograd.Function):
    """Embedding (B, C) and weights (B, n) of features (B, n, C).

    Arguments after the features: W_q, ω (1, C), W_k, scales and shifts of the layer norm and its ε,
    the exponent γ as a tensor, μ and ε. Parameters are float32. The shifts add the same to every
    score: they change nothing, and their gradient is 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        query: Tensor,
        prototype: Tensor,
        key: Tensor,
        scale: Tensor,
        shift: Tensor,
        edge: float,
        gamma: Tensor,
        mu: float,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        """Pool, and keep what the backward pass needs."""
        batch, n, d = features.shape
        mean = features.mean(1, dtype=torch.float32)
        asks = torch.addmm(prototype, mean, query.mT)
        asked = asks @ key
        factor = eps / math.sqrt(d)
        score, means, rstd, odds = mean.new_empty(4, batch, n)
        total = mean.new_empty(batch)
        weights = mean.new_empty(batch, n)
        embedding = features.new_empty(batch, d)
        log_sum, slope = mean.new_empty(2, batch, d)
        f = (features, *features.stride())
        every = max(16, triton.next_power_of_2(n))
        tile, block = ALONG_CHANNELS, ALONG_POSITIONS
        with on_device_of(features):
            _SCORE_TILE.launch(
                (batch, triton.cdiv(n, tile[0]), 1),
                (*f, asked, scale, factor, edge, n, d, score, means, rstd, total), tile, WARPS,
            )  # fmt: skip
            _WEIGH_IMAGE.launch(
                (batch, 1, 1), (score, mu, 1.0 - mu, n, odds, weights), (every,), _warps(every)
            )
            _POWER_MEAN.launch(
                (batch, triton.cdiv(d, block[1]), 1),
                (*f, weights, gamma, n, d, embedding, log_sum, slope), block, WARPS,
            )  # fmt: skip
        ctx.save_for_backward(
            features, query, key, scale, gamma, mean, asks, asked, score, means, rstd, odds,
            weights, total, log_sum, slope,
        )  # fmt: skip
        ctx.factor, ctx.every = factor, every
        ctx.set_materialize_grads(False)
        return embedding, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ge: Tensor | None, gw: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients, from those of the embedding and of the weights."""
        (
            features, query, key, scale, gamma, mean, asks, asked, score, means, rstd, odds,
            weights, total, log_sum, slope,
        ) = ctx.saved_tensors  # fmt: skip
        batch, n, d = features.shape
        if ge is None:
            ge = features.new_zeros(batch, d)
        if gw is not None:
            gw = gw.contiguous()
        tile, block = ALONG_CHANNELS, ALONG_POSITIONS
        blocks = triton.cdiv(d, block[1])
        share, push = torch.empty_like(score), torch.empty_like(score)
        to_asked, to_scale = torch.empty_like(asked), torch.empty_like(asked)
        to_gamma = asked.new_empty(batch, blocks)
        to_features = torch.empty_like(features)
        f = (features, *features.stride())
        to_embedding = (ge, *ge.stride())
        with on_device_of(features):
            _SHARE_TILE.launch(
                (batch, triton.cdiv(n, tile[0]), 1),
                (*f, weights, gamma, n, d, log_sum, *to_embedding, share), tile, WARPS,
            )  # fmt: skip
            _SCORE_GRADIENT.launch(
                (batch, 1, 1), (odds, share, weights, gw, rstd, n, push),
                (gw is not None, ctx.every), _warps(ctx.every),
            )  # fmt: skip
            _QUERY_GRADIENT.launch(
                (batch, blocks, 1),
                (
                    *f, asked, scale, ctx.factor, gamma, n, d, push, means, log_sum, slope,
                    *to_embedding, to_asked, to_scale, to_gamma,
                ),
                block, WARPS,
            )  # fmt: skip
            to_asks = to_asked @ key.mT
            to_mean = to_asks @ query
            _FEATURE_GRADIENT.launch(
                (batch, triton.cdiv(n, block[0]), blocks),
                (
                    *f, asked, scale, ctx.factor, weights, gamma, n, d, push, score, means, rstd,
                    total, log_sum, *to_embedding, to_mean, to_features, *to_features.stride(),
                ),
                block, WARPS,
            )  # fmt: skip
        return (
            to_features, to_asks.mT @ mean, to_asks.sum(0, keepdim=True), asks.mT @ to_asked,
            to_scale.sum(0), torch.zeros_like(scale), None, to_gamma.sum(), None, None,
        )  # fmt: skip
