"""Fused GSP on keys with one query per image, as an autograd function."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from sumpool.transport.fused import keyed
from sumpool.transport.fused.launch import Kernel
from sumpool.transport.fused.ops import on_device_of

_IMAGE_MEAN = Kernel(keyed.image_mean)
_SCORE_TILE = Kernel(keyed.score_tile)
_WEIGH_IMAGE = Kernel(keyed.weigh_image)
_POWER_MEAN = Kernel(keyed.power_mean)
_SHARE_TILE = Kernel(keyed.share_tile)
_SCORE_GRADIENT = Kernel(keyed.score_gradient)
_QUERY_GRADIENT = Kernel(keyed.query_gradient)
_FEATURE_GRADIENT = Kernel(keyed.feature_gradient)
_SUM_IMAGES = Kernel(keyed.sum_images)

#: Positions, channels and warps of a tile: the fastest for contiguous channels, and for contiguous
#: positions of small and of large maps.
TILES = {
    "mean": ((16, 64, 2), (16, 128, 4), (128, 8, 4)),
    "score": ((4, 256, 2), (16, 128, 4), (64, 16, 4)),
    "power": ((16, 64, 2), (16, 128, 4), (64, 16, 2)),
    "share": ((8, 256, 4), (8, 256, 4), (32, 128, 4)),
    "query": ((16, 64, 2), (16, 128, 4), (64, 16, 2)),
    "feature": ((8, 256, 4), (16, 32, 1), (64, 16, 2)),
}
#: Images, channels and warps of a tile of the sum over images; positions of a large map.
_SUM, _LARGE = (32, 32, 4), 128


def _kind(features: Tensor) -> int:
    """Index of the tile in :data:`TILES` that suits ``features``."""
    if features.stride(2) == 1:
        return 0
    return 2 if features.shape[1] >= _LARGE else 1


def _warps(every: int) -> int:
    """Number of warps of a program that holds all positions of an image."""
    return 4 if every <= 2048 else 8


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices or batches of them, in float32 or bfloat16, to float32."""
    if a.dtype == torch.float32 or not a.is_cuda:
        return a.float() @ b.float()
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    return multiply(a, b, out_dtype=torch.float32)


class KeyedPowerMean(torch.autograd.Function):
    """Embedding (B, C) and weights (B, n) of features (B, n, C).

    Arguments after the features: W_q, ω (1, C), W_k, scales and shifts of the layer norm and its ε,
    the exponent γ as a tensor and its lower bound, μ and ε. Parameters are float32. The shifts add
    the same value to every score: they have no effect, and their gradient is 0. With half-precision
    features, logarithms have 22 bits; with bfloat16 features, gradients are multiplied by W_q and
    W_k in bfloat16, as under autocast.
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
        floor: float,
        mu: float,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        """Pool features and save the inputs of the backward pass."""
        batch, n, d = features.shape
        new = query.new_empty
        score, means, rstd, odds = new(4, batch, n)
        weights, total = new(batch, n), new(batch)
        mean, (log_sum, slope) = new(batch, d), new(2, batch, d)
        embedding = features.new_empty(batch, d)
        factor = eps / math.sqrt(d)
        f = (features, *features.stride())
        every = max(16, triton.next_power_of_2(n))
        fast = features.dtype != torch.float32 and os.environ.get("TRITON_INTERPRET") != "1"
        kind = _kind(features)
        with on_device_of(features):
            bn, bd, warps = TILES["mean"][kind]
            _IMAGE_MEAN.launch((batch, triton.cdiv(d, bd), 1), (*f, n, d, mean), (bn, bd), warps)
            asks = torch.addmm(prototype[0], mean, query.mT)
            asked = asks @ key
            bn, bd, warps = TILES["score"][kind]
            _SCORE_TILE.launch(
                (batch, triton.cdiv(n, bn), 1),
                (*f, asked, scale, factor, edge, n, d, score, means, rstd, total), (bn, bd), warps,
            )  # fmt: skip
            _WEIGH_IMAGE.launch(
                (batch, 1, 1), (score, mu, 1.0 - mu, n, odds, weights), (every,), _warps(every)
            )
            bn, bd, warps = TILES["power"][kind]
            _POWER_MEAN.launch(
                (batch, triton.cdiv(d, bd), 1),
                (*f, weights, gamma, floor, n, d, embedding, log_sum, slope),
                (bn, bd, fast), warps,
            )  # fmt: skip
        ctx.save_for_backward(
            features, query, key, scale, gamma, mean, asks, asked, score, means, rstd, odds,
            weights, total, log_sum, slope,
        )  # fmt: skip
        ctx.settings = factor, floor, every, fast
        ctx.set_materialize_grads(False)
        return embedding, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ge: Tensor | None, gw: Tensor | None) -> tuple[Tensor | None, ...]:
        """Compute gradients from those of the embedding and the weights."""
        (
            features, query, key, scale, gamma, mean, asks, asked, score, means, rstd, odds,
            weights, total, log_sum, slope,
        ) = ctx.saved_tensors  # fmt: skip
        factor, floor, every, fast = ctx.settings
        batch, n, d = features.shape
        if ge is None:
            ge = features.new_zeros(batch, d)
        if gw is not None:
            gw = gw.contiguous()
        kind = _kind(features)
        dtype = torch.bfloat16 if features.dtype == torch.bfloat16 else torch.float32
        share, push = torch.empty_like(score), torch.empty_like(score)
        # Factors of the gradients of W_q and W_k, which are one batched product.
        left, right = asked.new_empty(2, 2, batch, d, dtype=dtype)
        to_scales = torch.empty_like(asked)
        to_features = torch.empty_like(features)
        f = (features, *features.stride())
        power = (gamma, floor, n, d)
        to_embedding = (ge, *ge.stride())
        with on_device_of(features):
            bn, bd, warps = TILES["share"][kind]
            _SHARE_TILE.launch(
                (batch, triton.cdiv(n, bn), 1),
                (*f, weights, *power, log_sum, *to_embedding, share), (bn, bd, fast), warps,
            )  # fmt: skip
            _SCORE_GRADIENT.launch(
                (batch, 1, 1), (odds, share, weights, gw, rstd, n, push),
                (gw is not None, every), _warps(every),
            )  # fmt: skip
            bn, bd, warps = TILES["query"][kind]
            parts = triton.cdiv(d, bd)
            to_gammas = asked.new_empty(batch, parts)
            _QUERY_GRADIENT.launch(
                (batch, parts, 1),
                (
                    *f, asked, scale, factor, *power, push, means, log_sum, slope,
                    *to_embedding, mean, asks, left, right, to_scales, to_gammas,
                ),
                (bn, bd), warps,
            )  # fmt: skip
            query, key = query.to(dtype), key.to(dtype)
            to_asks = torch.mm(right[1], key.mT, out=left[0])
            to_mean = _product(to_asks, query)
            bn, bd, warps = TILES["feature"][kind]
            _FEATURE_GRADIENT.launch(
                (batch, triton.cdiv(n, bn), triton.cdiv(d, bd)),
                (
                    *f, asked, scale, factor, weights, *power, push, score, means, rstd,
                    total, log_sum, *to_embedding, to_mean, to_features, *to_features.stride(),
                ),
                (bn, bd, fast), warps,
            )  # fmt: skip
            to_prototype, to_gamma = asked.new_empty(1, d), torch.empty_like(gamma)
            to_scale, to_shift = torch.empty_like(scale), torch.empty_like(scale)
            bn, bd, warps = _SUM
            _SUM_IMAGES.launch(
                (triton.cdiv(d, bd) + 1, 1, 1),
                (
                    to_scales, to_asks, to_gammas, gamma, floor, batch, d, parts,
                    to_scale, to_shift, to_prototype, to_gamma,
                ),
                (bn, bd), warps,
            )  # fmt: skip
            to_query, to_key = _product(left.mT, right)
        return (
            to_features, to_query, to_prototype, to_key, to_scale, to_shift, None, to_gamma,
            None, None, None,
        )  # fmt: skip
