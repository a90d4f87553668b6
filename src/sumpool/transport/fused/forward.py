"""Forward kernels of fused generalized sum pooling.

An image whose features fit a tile is pooled by a single program. A larger image takes four short
kernels: log-sums per tile, root, partial sums per tile, and their total. Nothing of size (n, m) is
stored.

Besides the results, both store the inputs of the backward pass: the log-odds x, and the means of
features and assignments under the slopes a = w/Σw, w = σ(x)σ(−x).
"""

from __future__ import annotations

import triton
import triton.language as tl

from sumpool.transport.fused.tiles import (
    assign,
    load_tile,
    settings,
    slopes,
    solve_log_odds,
    tile_costs,
    valid_rows,
)


@triton.jit
def pool_image(
    f_ptr, f_b, f_n, f_d, w_ptr, mask_ptr, mu_ptr, eps_ptr, mu, rest, eps, n, m, d,
    embedding_ptr, weights_ptr, z_ptr, saved_ptr,
    HAS_MASK: tl.constexpr, HAS_MU: tl.constexpr, HAS_EPS: tl.constexpr, BACKGROUND: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Pool one image that fits a tile."""
    b = tl.program_id(0).to(tl.int64)
    mu, rest, eps = settings(mu, rest, eps, mu_ptr, eps_ptr, HAS_MU, HAS_EPS)
    f_ptr += b * f_b
    saved_ptr += b * (n + d + m)
    rows = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_M)
    inside = rows < n
    ok = valid_rows(mask_ptr, b, rows, n, HAS_MASK)
    count = tl.sum(ok.to(tl.float32), 0)
    cost, _cos, _ff, _inv_f, _inv_w = tile_costs(
        f_ptr, f_n, f_d, w_ptr, rows, inside, m, d, BLOCK_N, BLOCK_M, BLOCK_D, PRECISION
    )
    q, l = assign(cost, eps, m, BLOCK_M)
    x = solve_log_odds(l, ok, count, mu, rest)
    sent = tl.where(ok, tl.sigmoid(x), 0.0) / (count * mu)
    slope = slopes(x, ok)
    if BACKGROUND:
        weights = tl.where(ok, tl.sigmoid(-x), 0.0) / (count * rest)
    else:
        weights = sent
    tl.store(saved_ptr + rows, x, mask=inside)
    tl.store(weights_ptr + b * n + rows, weights, mask=inside)
    tl.store(z_ptr + b * m + cols, tl.sum(sent[:, None] * q, 0), mask=cols < m)
    tl.store(saved_ptr + n + d + cols, tl.sum(slope[:, None] * q, 0), mask=cols < m)
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        f = load_tile(f_ptr, rows, channels, f_n, f_d, inside, channels < d)
        there = channels < d
        tl.store(embedding_ptr + b * d + channels, tl.sum(weights[:, None] * f, 0), mask=there)
        tl.store(saved_ptr + n + channels, tl.sum(slope[:, None] * f, 0), mask=there)


@triton.jit
def tile_log_sums(
    f_ptr, f_b, f_n, f_d, w_ptr, mu_ptr, eps_ptr, eps, n, m, d, saved_ptr,
    HAS_EPS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the log-sums l of one tile, stored where the log-odds will be."""
    b = tl.program_id(0).to(tl.int64)
    _mu, _rest, eps = settings(0.0, 0.0, eps, mu_ptr, eps_ptr, False, HAS_EPS)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    cost, _cos, _ff, _inv_f, _inv_w = tile_costs(
        f_ptr + b * f_b, f_n, f_d, w_ptr, rows, rows < n, m, d, BLOCK_N, BLOCK_M, BLOCK_D, PRECISION
    )
    _q, l = assign(cost, eps, m, BLOCK_M)
    tl.store(saved_ptr + b * (n + d + m) + rows, l, mask=rows < n)


@triton.jit
def solve_image(
    mask_ptr, mu_ptr, eps_ptr, mu, rest, n, m, d, saved_ptr, weights_ptr, sent_ptr, slope_ptr,
    HAS_MASK: tl.constexpr, HAS_MU: tl.constexpr, BACKGROUND: tl.constexpr,
    BLOCK_ALL: tl.constexpr,
):  # fmt: skip
    """Compute the log-odds, weights and slopes of an image from its log-sums."""
    b = tl.program_id(0).to(tl.int64)
    mu, rest, _eps = settings(mu, rest, 0.0, mu_ptr, eps_ptr, HAS_MU, False)
    rows = tl.arange(0, BLOCK_ALL)
    inside = rows < n
    ok = valid_rows(mask_ptr, b, rows, n, HAS_MASK)
    count = tl.sum(ok.to(tl.float32), 0)
    at = b * n + rows
    saved_ptr += b * (n + d + m)
    x = solve_log_odds(tl.load(saved_ptr + rows, mask=inside, other=0.0), ok, count, mu, rest)
    sent = tl.where(ok, tl.sigmoid(x), 0.0) / (count * mu)
    tl.store(saved_ptr + rows, x, mask=inside)
    tl.store(slope_ptr + at, slopes(x, ok), mask=inside)
    if BACKGROUND:
        kept = tl.where(ok, tl.sigmoid(-x), 0.0) / (count * rest)
        tl.store(weights_ptr + at, kept, mask=inside)
        tl.store(sent_ptr + at, sent, mask=inside)
    else:
        tl.store(weights_ptr + at, sent, mask=inside)


@triton.jit
def tile_sums(
    f_ptr, f_b, f_n, f_d, w_ptr, mu_ptr, eps_ptr, eps, n, m, d,
    weights_ptr, sent_ptr, slope_ptr, part_ptr,
    HAS_EPS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial sums of one tile: embedding, attributes and their slope-weighted counterparts.

    ``part_ptr`` holds (B, tiles, 2, d + m): under the weights, under the slopes.
    """
    b = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    _mu, _rest, eps = settings(0.0, 0.0, eps, mu_ptr, eps_ptr, False, HAS_EPS)
    f_ptr += b * f_b
    part_ptr += (b * tl.num_programs(1) + tile) * 2 * (d + m)
    rows = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_M)
    inside = rows < n
    at = b * n + rows
    weights = tl.load(weights_ptr + at, mask=inside, other=0.0)
    sent = tl.load(sent_ptr + at, mask=inside, other=0.0)
    slope = tl.load(slope_ptr + at, mask=inside, other=0.0)
    cost, _cos, _ff, _inv_f, _inv_w = tile_costs(
        f_ptr, f_n, f_d, w_ptr, rows, inside, m, d, BLOCK_N, BLOCK_M, BLOCK_D, PRECISION
    )
    q, _l = assign(cost, eps, m, BLOCK_M)
    tl.store(part_ptr + d + cols, tl.sum(sent[:, None] * q, 0), mask=cols < m)
    tl.store(part_ptr + d + m + d + cols, tl.sum(slope[:, None] * q, 0), mask=cols < m)
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        f = load_tile(f_ptr, rows, channels, f_n, f_d, inside, channels < d)
        tl.store(part_ptr + channels, tl.sum(weights[:, None] * f, 0), mask=channels < d)
        tl.store(part_ptr + d + m + channels, tl.sum(slope[:, None] * f, 0), mask=channels < d)


@triton.jit
def total_sums(
    part_ptr, tiles, n, m, d, embedding_ptr, z_ptr, saved_ptr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the results of :func:`tile_sums` over tiles and store the totals."""
    b = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # 0 … 2 (d + m)
    width = 2 * (d + m)
    total = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tiles):
        total += tl.load(part_ptr + (b * tiles + tile) * width + at, mask=at < width, other=0.0)
    tl.store(embedding_ptr + b * d + at, total, mask=at < d)
    tl.store(z_ptr + b * m + at - d, total, mask=(at >= d) & (at < d + m))
    # Under the slopes: the means of features, then of assignments, after the log-odds.
    behind = saved_ptr + b * (n + d + m) + n + at - (d + m)
    tl.store(behind, total, mask=(at >= d + m) & (at < width))
