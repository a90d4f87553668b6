"""Kernels of GSP on keys with one query per image: scores, weights, power mean, and back.

Symbols: f features (n, d), k the query of the image in their space, times the scales of the layer
norm; s_j = k·(f_j − mean_j)/std_j scores, x = τ + s log-odds, p = σ(x)/(nμ) weights, and, in each
channel, L = log Σ_j p_j max(f_j, δ)^γ, so that the embedding is exp(L/γ). Powers are formed from
logarithms. All arithmetic is in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sumpool.transport.fused.tiles import load_tile, slopes, solve_log_odds

# What features count as at least, and the least weight whose logarithm is taken.
LEAST = tl.constexpr(1e-6)
TINY = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def score_tile(
    f_ptr, f_b, f_n, f_d, asked_ptr, scale_ptr, factor, edge, n, d,
    score_ptr, mean_ptr, rstd_ptr, total_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Scores s of a tile of positions, with the moments of their layer norm, and Σ k."""
    b = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = rows < n
    mean = tl.zeros((BLOCK_N,), tl.float32)
    square = tl.zeros((BLOCK_N,), tl.float32)
    dot = tl.zeros((BLOCK_N,), tl.float32)
    total = 0.0
    seen = 0.0
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        there = channels < d
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        k = _query(asked_ptr + b * d, scale_ptr, factor, channels, there)
        # Moments of the blocks are joined: a mean far from 0 costs no digits.
        count = tl.sum(there.to(tl.float32), 0)
        middle = tl.sum(f, 1) / count
        away = tl.where(there[None, :], f - middle[:, None], 0.0)
        gap = middle - mean
        square += tl.sum(away * away, 1) + gap * gap * (seen * count / (seen + count))
        mean += gap * (count / (seen + count))
        seen += count
        dot += tl.sum(f * k[None, :], 1)
        total += tl.sum(k, 0)
    rstd = tl.rsqrt(square / seen + edge)
    at = b * n + rows
    tl.store(score_ptr + at, (dot - mean * total) * rstd, mask=inside)
    tl.store(mean_ptr + at, mean, mask=inside)
    tl.store(rstd_ptr + at, rstd, mask=inside)
    tl.store(total_ptr + b, total, mask=tl.program_id(1) == 0)


@triton.jit
def weigh_image(
    score_ptr, mu, rest, n, odds_ptr, weights_ptr,
    BLOCK_ALL: tl.constexpr,
):  # fmt: skip
    """From the scores of an image to its log-odds and weights."""
    b = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BLOCK_ALL)
    inside = rows < n
    at = b * n + rows
    count = tl.sum(inside.to(tl.float32), 0)
    score = tl.load(score_ptr + at, mask=inside, other=0.0)
    x = solve_log_odds(score, inside, count, mu, rest)
    tl.store(odds_ptr + at, x, mask=inside)
    tl.store(weights_ptr + at, tl.sigmoid(x) / (count * mu), mask=inside)


@triton.jit
def power_mean(
    f_ptr, f_b, f_n, f_d, weights_ptr, gamma_ptr, n, d, embedding_ptr, log_ptr, slope_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The embedding in a block of channels; L, and its derivative by γ."""
    b = tl.program_id(0).to(tl.int64)
    gamma = tl.load(gamma_ptr).to(tl.float32)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = channels < d
    top = tl.full((BLOCK_D,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_D,), tl.float32)
    logs = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, n, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        inside = rows < n
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        p = tl.load(weights_ptr + b * n + rows, mask=inside, other=0.0)
        log_f = tl.log(tl.maximum(f, LEAST))
        power = gamma * log_f + tl.log(tl.maximum(p, TINY))[:, None]
        power = tl.where(inside[:, None], power, -float("inf"))
        higher = tl.maximum(top, tl.max(power, 0))
        before = tl.exp(top - higher)
        share = tl.exp(power - higher[None, :])
        total = total * before + tl.sum(share, 0)
        logs = logs * before + tl.sum(share * log_f, 0)
        top = higher
    log_sum = top + tl.log(total)
    at = b * d + channels
    tl.store(embedding_ptr + at, tl.exp(log_sum / gamma), mask=there)
    tl.store(log_ptr + at, log_sum, mask=there)
    tl.store(slope_ptr + at, logs / total, mask=there)


@triton.jit
def share_tile(
    f_ptr, f_b, f_n, f_d, weights_ptr, gamma_ptr, n, d, log_ptr, ge_ptr, ge_b, ge_d, share_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """h_j = p_j ∂/∂p_j of what the gradient of the embedding asks for, for a tile of positions."""
    b = tl.program_id(0).to(tl.int64)
    gamma = tl.load(gamma_ptr).to(tl.float32)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = rows < n
    p = tl.load(weights_ptr + b * n + rows, mask=inside, other=0.0)
    log_p = tl.log(tl.maximum(p, TINY))
    h = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        there = channels < d
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        log_sum, to_log = _to_log(log_ptr + b * d, ge_ptr + b * ge_b, ge_d, gamma, channels, there)
        share = _share(f, log_p, log_sum, gamma)
        h += tl.sum(share * to_log[None, :], 1)
    tl.store(share_ptr + b * n + rows, h, mask=inside)


@triton.jit
def score_gradient(
    odds_ptr, share_ptr, weights_ptr, gw_ptr, rstd_ptr, n, push_ptr,
    HAS_GW: tl.constexpr, BLOCK_ALL: tl.constexpr,
):  # fmt: skip
    """∂/∂s_j over the standard deviation of f_j, for the positions of an image."""
    b = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BLOCK_ALL)
    inside = rows < n
    at = b * n + rows
    x = tl.load(odds_ptr + at, mask=inside, other=0.0)
    h = tl.load(share_ptr + at, mask=inside, other=0.0)
    if HAS_GW:
        p = tl.load(weights_ptr + at, mask=inside, other=0.0)
        h += p * tl.load(gw_ptr + at, mask=inside, other=0.0).to(tl.float32)
    moved = tl.where(inside, tl.sigmoid(-x) * h, 0.0)
    # The sum of the weights stays: what moves is taken back where the slopes are.
    pushed = moved - slopes(x, inside) * tl.sum(moved, 0)
    rstd = tl.load(rstd_ptr + at, mask=inside, other=0.0)
    tl.store(push_ptr + at, pushed * rstd, mask=inside)


@triton.jit
def query_gradient(
    f_ptr, f_b, f_n, f_d, asked_ptr, scale_ptr, factor, gamma_ptr, n, d, push_ptr, mean_ptr,
    log_ptr, slope_ptr, ge_ptr, ge_b, ge_d, to_asked_ptr, to_scale_ptr, to_gamma_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Gradients to the query, to the scales of the layer norm and to γ: the image's share."""
    b = tl.program_id(0).to(tl.int64)
    gamma = tl.load(gamma_ptr).to(tl.float32)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = channels < d
    to_k = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, n, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        inside = rows < n
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        push = tl.load(push_ptr + b * n + rows, mask=inside, other=0.0)
        mean = tl.load(mean_ptr + b * n + rows, mask=inside, other=0.0)
        to_k += tl.sum(push[:, None] * (f - mean[:, None]), 0)
    at = b * d + channels
    scale = tl.load(scale_ptr + channels, mask=there, other=0.0).to(tl.float32)
    asked = tl.load(asked_ptr + at, mask=there, other=0.0)
    tl.store(to_asked_ptr + at, to_k * scale * factor, mask=there)
    tl.store(to_scale_ptr + at, to_k * asked * factor, mask=there)
    log_sum, to_log = _to_log(log_ptr + b * d, ge_ptr + b * ge_b, ge_d, gamma, channels, there)
    slope = tl.load(slope_ptr + at, mask=there, other=0.0)
    to_gamma = tl.sum(to_log * (slope - log_sum / gamma), 0)
    tl.store(to_gamma_ptr + b * tl.num_programs(1) + tl.program_id(1), to_gamma)


@triton.jit
def feature_gradient(
    f_ptr, f_b, f_n, f_d, asked_ptr, scale_ptr, factor, weights_ptr, gamma_ptr, n, d,
    push_ptr, score_ptr, mean_ptr, rstd_ptr, total_ptr, log_ptr, ge_ptr, ge_b, ge_d, to_mean_ptr,
    df_ptr, df_b, df_n, df_d,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The gradient to a tile of features: as values, as keys, and as a part of the mean."""
    b = tl.program_id(0).to(tl.int64)
    gamma = tl.load(gamma_ptr).to(tl.float32)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    channels = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside, there = rows < n, channels < d
    f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
    at = b * n + rows
    p = tl.load(weights_ptr + at, mask=inside, other=0.0)
    push = tl.load(push_ptr + at, mask=inside, other=0.0)
    score = tl.load(score_ptr + at, mask=inside, other=0.0)
    mean = tl.load(mean_ptr + at, mask=inside, other=0.0)
    rstd = tl.load(rstd_ptr + at, mask=inside, other=0.0)
    k = _query(asked_ptr + b * d, scale_ptr, factor, channels, there)
    middle = tl.load(total_ptr + b) / d
    along = (f - mean[:, None]) * (rstd * score / d)[:, None]
    out = push[:, None] * ((k - middle)[None, :] - along)
    log_sum, to_log = _to_log(log_ptr + b * d, ge_ptr + b * ge_b, ge_d, gamma, channels, there)
    share = _share(f, tl.log(tl.maximum(p, TINY)), log_sum, gamma)
    as_value = share * to_log[None, :] * gamma / tl.maximum(f, LEAST)
    out += tl.where(f >= LEAST, as_value, 0.0)
    to_mean = tl.load(to_mean_ptr + b * d + channels, mask=there, other=0.0)
    out += (to_mean / n)[None, :]
    where = df_ptr + b * df_b + rows[:, None] * df_n + channels[None, :] * df_d
    tl.store(where, out, mask=inside[:, None] & there[None, :])


@triton.jit
def _query(asked_ptr, scale_ptr, factor, channels, there):
    """k of some channels."""
    asked = tl.load(asked_ptr + channels, mask=there, other=0.0)
    return asked * tl.load(scale_ptr + channels, mask=there, other=0.0).to(tl.float32) * factor


@triton.jit
def _to_log(log_ptr, ge_ptr, ge_d, gamma, channels, there):
    """L of some channels, and the gradient to it."""
    log_sum = tl.load(log_ptr + channels, mask=there, other=0.0)
    ge = tl.load(ge_ptr + channels * ge_d, mask=there, other=0.0).to(tl.float32)
    return log_sum, ge * tl.exp(log_sum / gamma) / gamma


@triton.jit
def _share(f, log_p, log_sum, gamma):
    """The share of each position in the sums of the channels, 1 in total."""
    power = gamma * tl.log(tl.maximum(f, LEAST)) + log_p[:, None]
    return tl.exp(power - log_sum[None, :])
