"""Kernels of GSP on keys with one query per image: scores, weights, power mean, gradients.

Symbols: f features (n, d), k the query of the image in their space, times the scales of the layer
norm and ε/√d; s_j = k·(f_j − mean_j)/std_j scores, x = τ + s log-odds, p = σ(x)/(nμ) weights, and,
in each channel, L = log₂ Σ_j p_j max(f_j, δ)^γ, so that the embedding is 2^(L/γ). Powers are
computed from logarithms. All arithmetic is in float32. Sums are accumulated per element of a tile
and reduced after the last tile, since reductions cost more than additions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sumpool.transport.fused.tiles import load_tile, slopes, solve_log_odds

# Lower bounds of features and of weights before their logarithm is taken.
LEAST = tl.constexpr(1e-6)
TINY = tl.constexpr(1.1754943508222875e-38)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def image_mean(
    f_ptr, f_b, f_n, f_d, n, d, mean_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Average the features in a block of channels."""
    b = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = channels < d
    total = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for start in range(0, n, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        total += load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, rows < n, there)
    tl.store(mean_ptr + b * d + channels, tl.sum(total, 0) / n, mask=there)


@triton.jit
def score_tile(
    f_ptr, f_b, f_n, f_d, asked_ptr, scale_ptr, factor, edge, n, d,
    score_ptr, mean_ptr, rstd_ptr, total_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Compute the scores s of a tile of positions, the moments of their layer norm, and Σ k."""
    b = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = rows < n
    means = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    squares = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dots = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    totals = tl.zeros((BLOCK_D,), tl.float32)
    step = 0.0
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        there = channels < d
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        k = _query(asked_ptr + b * d, scale_ptr, factor, channels, there)
        # Welford's algorithm: a mean far from 0 costs no digits.
        step += 1.0
        gap = tl.where(there[None, :], f - means, 0.0)
        means += gap * (1.0 / step)
        squares += gap * (f - means)
        dots += f * k[None, :]
        totals += k
    counts = ((d - tl.arange(0, BLOCK_D) + BLOCK_D - 1) // BLOCK_D).to(tl.float32)
    mean = tl.sum(means * counts[None, :], 1) / d
    away = means - mean[:, None]
    square = tl.sum(squares + away * away * counts[None, :], 1)
    total = tl.sum(totals, 0)
    rstd = tl.rsqrt(square / d + edge)
    at = b * n + rows
    tl.store(score_ptr + at, (tl.sum(dots, 1) - mean * total) * rstd, mask=inside)
    tl.store(mean_ptr + at, mean, mask=inside)
    tl.store(rstd_ptr + at, rstd, mask=inside)
    tl.store(total_ptr + b, total, mask=tl.program_id(1) == 0)


@triton.jit
def weigh_image(
    score_ptr, mu, rest, n, odds_ptr, weights_ptr,
    BLOCK_ALL: tl.constexpr,
):  # fmt: skip
    """Compute the log-odds and weights of an image from its scores."""
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
    f_ptr, f_b, f_n, f_d, weights_ptr, gamma_ptr, floor, n, d, embedding_ptr, log_ptr, slope_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Compute the embedding in a block of channels, L, and its derivative with respect to γ."""
    b = tl.program_id(0).to(tl.int64)
    gamma = _exponent(gamma_ptr, floor)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = channels < d
    tops = tl.full((BLOCK_N, BLOCK_D), -1e30, tl.float32)
    totals = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    logs = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for start in range(0, n, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        inside = rows < n
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        log_f = _log2(tl.maximum(f, LEAST), FAST)
        power = gamma * log_f + _log_weights(weights_ptr + b * n, rows, inside)[:, None]
        # Relative to the larger of the two: one power instead of two.
        above = power > tops
        ratio = tl.exp2(-tl.abs(power - tops))
        before = tl.where(above, ratio, 1.0)
        share = tl.where(above, 1.0, ratio)
        totals = totals * before + share
        logs = logs * before + share * log_f
        tops = tl.maximum(tops, power)
    top = tl.max(tops, 0)
    part = tl.exp2(tops - top[None, :])
    total = tl.sum(totals * part, 0)
    log_sum = top + tl.log2(total)
    at = b * d + channels
    tl.store(embedding_ptr + at, tl.exp2(log_sum / gamma), mask=there)
    tl.store(log_ptr + at, log_sum, mask=there)
    tl.store(slope_ptr + at, tl.sum(logs * part, 0) / total, mask=there)


@triton.jit
def share_tile(
    f_ptr, f_b, f_n, f_d, weights_ptr, gamma_ptr, floor, n, d, log_ptr, ge_ptr, ge_b, ge_d,
    share_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Compute h_j = p_j ∂loss/∂p_j, through the embedding, for a tile of positions."""
    b = tl.program_id(0).to(tl.int64)
    gamma = _exponent(gamma_ptr, floor)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = rows < n
    log_p = _log_weights(weights_ptr + b * n, rows, inside)
    shares = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        there = channels < d
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        log_sum, to_log = _to_log(log_ptr + b * d, ge_ptr + b * ge_b, ge_d, gamma, channels, there)
        power = gamma * _log2(tl.maximum(f, LEAST), FAST) + log_p[:, None]
        shares += tl.exp2(power - log_sum[None, :]) * to_log[None, :]
    tl.store(share_ptr + b * n + rows, tl.sum(shares, 1), mask=inside)


@triton.jit
def score_gradient(
    odds_ptr, share_ptr, weights_ptr, gw_ptr, rstd_ptr, n, push_ptr,
    HAS_GW: tl.constexpr, BLOCK_ALL: tl.constexpr,
):  # fmt: skip
    """Compute ∂loss/∂s_j over the standard deviation of f_j, for the positions of an image."""
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
    # The weights keep their sum: τ takes back the total, in proportion to the slopes.
    pushed = moved - slopes(x, inside) * tl.sum(moved, 0)
    rstd = tl.load(rstd_ptr + at, mask=inside, other=0.0)
    tl.store(push_ptr + at, pushed * rstd, mask=inside)


@triton.jit
def query_gradient(
    f_ptr, f_b, f_n, f_d, asked_ptr, scale_ptr, factor, gamma_ptr, floor, n, d, push_ptr, mean_ptr,
    log_ptr, slope_ptr, ge_ptr, ge_b, ge_d, image_ptr, asks_ptr, left_ptr, right_ptr, to_scale_ptr,
    to_gamma_ptr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Compute an image's part of the gradients of the query, the layer norm's scales and γ.

    The gradients of W_q and W_k are products of the factors ``left`` and ``right`` over images.
    This kernel stores both parts of ``right``, the image's mean and the gradient of its query in
    the space of the features, and the second part of ``left``, its query in the space of the keys.
    """
    b = tl.program_id(0).to(tl.int64)
    gamma = _exponent(gamma_ptr, floor)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    there = channels < d
    pushes = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for start in range(0, n, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        inside = rows < n
        f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
        push = tl.load(push_ptr + b * n + rows, mask=inside, other=0.0)
        mean = tl.load(mean_ptr + b * n + rows, mask=inside, other=0.0)
        pushes += push[:, None] * (f - mean[:, None])
    to_k = tl.sum(pushes, 0) * factor
    at = b * d + channels
    scale = tl.load(scale_ptr + channels, mask=there, other=0.0).to(tl.float32)
    asked = tl.load(asked_ptr + at, mask=there, other=0.0)
    second = tl.num_programs(0).to(tl.int64) * d + at
    tl.store(right_ptr + second, to_k * scale, mask=there)
    tl.store(right_ptr + at, tl.load(image_ptr + at, mask=there, other=0.0), mask=there)
    tl.store(left_ptr + second, tl.load(asks_ptr + at, mask=there, other=0.0), mask=there)
    tl.store(to_scale_ptr + at, to_k * asked, mask=there)
    log_sum, to_log = _to_log(log_ptr + b * d, ge_ptr + b * ge_b, ge_d, gamma, channels, there)
    slope = tl.load(slope_ptr + at, mask=there, other=0.0)
    to_gamma = LN2 * tl.sum(to_log * (slope - log_sum / gamma), 0)
    tl.store(to_gamma_ptr + b * tl.num_programs(1) + tl.program_id(1), to_gamma)


@triton.jit
def feature_gradient(
    f_ptr, f_b, f_n, f_d, asked_ptr, scale_ptr, factor, weights_ptr, gamma_ptr, floor, n, d,
    push_ptr, score_ptr, mean_ptr, rstd_ptr, total_ptr, log_ptr, ge_ptr, ge_b, ge_d, to_mean_ptr,
    df_ptr, df_b, df_n, df_d,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a tile of features: as values, as keys, and as part of the mean."""
    b = tl.program_id(0).to(tl.int64)
    gamma = _exponent(gamma_ptr, floor)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    channels = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside, there = rows < n, channels < d
    f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
    at = b * n + rows
    push = tl.load(push_ptr + at, mask=inside, other=0.0)
    score = tl.load(score_ptr + at, mask=inside, other=0.0)
    mean = tl.load(mean_ptr + at, mask=inside, other=0.0)
    rstd = tl.load(rstd_ptr + at, mask=inside, other=0.0)
    k = _query(asked_ptr + b * d, scale_ptr, factor, channels, there)
    middle = tl.load(total_ptr + b) / d
    along = (f - mean[:, None]) * (rstd * score / d)[:, None]
    out = push[:, None] * ((k - middle)[None, :] - along)
    log_sum, to_log = _to_log(log_ptr + b * d, ge_ptr + b * ge_b, ge_d, gamma, channels, there)
    # Shares divided by features are powers as well, with exponent γ − 1.
    log_p = _log_weights(weights_ptr + b * n, rows, inside)
    power = (gamma - 1.0) * _log2(tl.maximum(f, LEAST), FAST) + log_p[:, None]
    as_value = tl.exp2(power - log_sum[None, :]) * (to_log * gamma)[None, :]
    out += tl.where(f >= LEAST, as_value, 0.0)
    to_mean = tl.load(to_mean_ptr + b * d + channels, mask=there, other=0.0)
    out += (to_mean / n)[None, :]
    where = df_ptr + b * df_b + rows[:, None] * df_n + channels[None, :] * df_d
    tl.store(where, out, mask=inside[:, None] & there[None, :])


@triton.jit
def sum_images(
    to_scale_ptr, to_asks_ptr, to_gamma_ptr, gamma_ptr, floor, batch, d, parts,
    scale_ptr, shift_ptr, prototype_ptr, exponent_ptr,
    BLOCK_B: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the scales, ω and γ over images; those of the shifts are 0."""
    block = tl.program_id(0)
    if block == tl.num_programs(0) - 1:
        sums = tl.zeros((BLOCK_B * BLOCK_D,), tl.float32)
        for start in range(0, batch * parts, BLOCK_B * BLOCK_D):
            at = start + tl.arange(0, BLOCK_B * BLOCK_D)
            sums += tl.load(to_gamma_ptr + at, mask=at < batch * parts, other=0.0)
        held = tl.load(gamma_ptr).to(tl.float32) < floor
        tl.store(exponent_ptr, tl.where(held, 0.0, tl.sum(sums, 0)))
    else:
        channels = block * BLOCK_D + tl.arange(0, BLOCK_D)
        there = channels < d
        scales = tl.zeros((BLOCK_B, BLOCK_D), tl.float32)
        asks = tl.zeros((BLOCK_B, BLOCK_D), tl.float32)
        for start in range(0, batch, BLOCK_B):
            images = start + tl.arange(0, BLOCK_B)
            known = images < batch
            scales += load_tile(to_scale_ptr, images, channels, d, 1, known, there)
            asks += load_tile(to_asks_ptr, images, channels, d, 1, known, there)
        tl.store(scale_ptr + channels, tl.sum(scales, 0), mask=there)
        tl.store(shift_ptr + channels, tl.zeros((BLOCK_D,), tl.float32), mask=there)
        tl.store(prototype_ptr + channels, tl.sum(asks, 0), mask=there)


@triton.jit
def _query(asked_ptr, scale_ptr, factor, channels, there):
    """Load k of some channels."""
    asked = tl.load(asked_ptr + channels, mask=there, other=0.0)
    return asked * tl.load(scale_ptr + channels, mask=there, other=0.0).to(tl.float32) * factor


@triton.jit
def _exponent(gamma_ptr, floor):
    """Load γ, clamped to at least ``floor``."""
    return tl.maximum(tl.load(gamma_ptr).to(tl.float32), floor)


@triton.jit
def _log_weights(weights_ptr, rows, inside):
    """log₂ p of some positions; outside the image, so small that powers are 0."""
    p = tl.load(weights_ptr + rows, mask=inside, other=0.0)
    return tl.where(inside, tl.log2(tl.maximum(p, TINY)), -1e30)


@triton.jit
def _log2(x, FAST: tl.constexpr):
    """log₂ x; if ``FAST``, to 22 bits, enough for x of half precision."""
    if FAST:
        return tl.inline_asm_elementwise(
            "lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.log2(x)


@triton.jit
def _to_log(log_ptr, ge_ptr, ge_d, gamma, channels, there):
    """Load L of some channels, and compute the gradient of the natural logarithm L ln 2."""
    log_sum = tl.load(log_ptr + channels, mask=there, other=0.0)
    ge = tl.load(ge_ptr + channels * ge_d, mask=there, other=0.0).to(tl.float32)
    return log_sum, ge * tl.exp2(log_sum / gamma) / gamma
