"""Backward kernels of fused generalized sum pooling.

With B_j = ∂L/∂weight_j + ∂L/∂embedding · f_j and Z_j = Σ_i q_ji ∂L/∂z_i, the gradient of the share
that a feature sends is A_j = (B_j + Z_j)/(nμ) and that of its log-sum w_j (A_j − Σ a_k A_k), where
a = w/Σw. The sum over the image consists of dot products with values saved by the forward pass, so
that all tiles of all images are independent. Distances are recomputed, and nothing of size (n, m)
is stored.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sumpool.transport.fused.tiles import EDGE, assign, load_tile, settings, tile_costs, valid_rows


@triton.jit
def tile_gradients(
    f_ptr, f_b, f_n, f_d, w_ptr, mask_ptr, mu_ptr, eps_ptr, mu, rest, eps, images, tiles, n, m, d,
    saved_ptr,
    ge_ptr, ge_b, ge_d, gw_ptr, gz_ptr, gz_b, gz_m,
    df_ptr, df_b, df_n, df_d, part_ptr,
    HAS_MASK: tl.constexpr, HAS_MU: tl.constexpr, HAS_EPS: tl.constexpr, BACKGROUND: tl.constexpr,
    HAS_GE: tl.constexpr, HAS_GW: tl.constexpr, HAS_GZ: tl.constexpr, WANT_SCALARS: tl.constexpr,
    BLOCK_ALL: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, ROUGH: tl.constexpr,
):  # fmt: skip
    """Gradients of the features of some tiles, and this program's part of the prototypes' gradient.

    A program processes every ``num_programs``-th tile and accumulates Eᵀf̄ (m, d) and the column
    sums of E in its own memory: the total does not depend on the order in which programs run.
    """
    pid = tl.program_id(0)
    mu, rest, eps = settings(mu, rest, eps, mu_ptr, eps_ptr, HAS_MU, HAS_EPS)
    cols = tl.arange(0, BLOCK_M)
    col_ok = cols < m
    part_ptr += pid.to(tl.int64) * (m * d + m + 2)
    pull_sum = tl.zeros((BLOCK_M,), tl.float32)
    d_mu = mu * 0.0
    d_eps = mu * 0.0
    for item in range(pid, images * tiles, tl.num_programs(0)):
        b = (item // tiles).to(tl.int64)
        tile = item % tiles
        rows = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = rows < n
        ok = valid_rows(mask_ptr, b, rows, n, HAS_MASK)
        if HAS_MASK:
            every = tl.arange(0, BLOCK_ALL)
            count = tl.sum(valid_rows(mask_ptr, b, every, n, HAS_MASK).to(tl.float32), 0)
        else:
            count = n * 1.0
        kept_ptr = saved_ptr + b * (n + d + m)
        x = tl.load(kept_ptr + rows, mask=inside, other=0.0)
        cost, cos, ff, inv_f, inv_w = tile_costs(
            f_ptr + b * f_b, f_n, f_d, w_ptr, rows, inside, m, d,
            BLOCK_N, BLOCK_M, BLOCK_D, PRECISION,
        )  # fmt: skip
        q, _l = assign(cost, eps, m, BLOCK_M)
        p = tl.where(ok, tl.sigmoid(x), 0.0) / (count * mu)
        slope = tl.where(ok, tl.sigmoid(x) * tl.sigmoid(-x), 0.0)
        if BACKGROUND:
            weights = tl.where(ok, tl.sigmoid(-x), 0.0) / (count * rest)
            scale = -1.0 / (count * rest)
        else:
            weights = p
            scale = 1.0 / (count * mu)

        # ∂L/∂weights: directly, and through the embedding.
        to_weights = tl.zeros((BLOCK_N,), tl.float32)
        mean = mu * 0.0  # Σ a_j A_j
        if HAS_GE:
            for start in range(0, d, BLOCK_D):
                channels = start + tl.arange(0, BLOCK_D)
                f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, channels < d)
                ge = tl.load(ge_ptr + b * ge_b + channels * ge_d, mask=channels < d, other=0.0).to(
                    tl.float32
                )
                to_weights += tl.sum(f * ge[None, :], 1)
                fa = tl.load(kept_ptr + n + channels, mask=channels < d, other=0.0)
                mean += scale * tl.sum(fa * ge, 0)
        if HAS_GW:
            to_weights += tl.load(gw_ptr + b * n + rows, mask=inside, other=0.0)
            every = tl.arange(0, BLOCK_ALL)
            every_ok = valid_rows(mask_ptr, b, every, n, HAS_MASK)
            size = tl.abs(tl.load(kept_ptr + every, mask=every < n, other=0.0))
            log_w = tl.where(every_ok, -size - 2.0 * tl.log(1.0 + tl.exp(-size)), -float("inf"))
            e = tl.exp(log_w - tl.max(log_w, 0))
            gw = tl.load(gw_ptr + b * n + every, mask=every < n, other=0.0)
            mean += scale * tl.sum(e * gw, 0) / tl.sum(e, 0)
        to_sent = scale * to_weights  # A_j
        if HAS_GZ:
            gz = tl.load(gz_ptr + b * gz_b + cols * gz_m, mask=col_ok, other=0.0).to(tl.float32)
            za = tl.load(kept_ptr + n + d + cols, mask=col_ok, other=0.0)
            mean += tl.sum(za * gz, 0) / (count * mu)
            expected = tl.sum(q * gz[None, :], 1)
            to_sent += expected / (count * mu)
            inner = p[:, None] * (gz[None, :] - expected[:, None])
        else:
            expected = tl.zeros((BLOCK_N,), tl.float32)
            inner = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        # ∂L/∂(−εc), then E = (∂L/∂c)/c, 0 where features and prototypes coincide.
        to_score = q * (inner + (slope * (to_sent - mean))[:, None])
        apart = cost > 0.0
        pull = tl.where(apart, -eps * to_score / tl.where(apart, cost, 1.0), 0.0)
        if WANT_SCALARS:
            d_eps -= tl.sum(tl.sum(to_score * cost, 1), 0)
            d_mu -= tl.sum(p * expected, 0) / mu
            if BACKGROUND:
                d_mu += tl.sum(weights * to_weights, 0) / rest
            else:
                d_mu -= tl.sum(weights * to_weights, 0) / mu
            if tile == 0:
                d_mu += count * mean

        # ∂L/∂f̄ = f̄ ΣE − E ω̄; through the normalization where it acts; and p ∂L/∂embedding.
        row_sum = tl.sum(pull, 1)
        pull_sum += tl.sum(pull, 0)
        radial = ff * inv_f * inv_f * row_sum - tl.sum(pull * cos, 1)
        along = inv_f * inv_f * (row_sum - tl.where(ff > EDGE, radial, 0.0))
        pull = pull * inv_f[:, None]
        # Two loops over the channels, so that only one layout of ``pull`` is held at a time.
        for start in range(0, d, BLOCK_D):
            channels = start + tl.arange(0, BLOCK_D)
            there = channels < d
            f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
            w = load_tile(w_ptr, cols, channels, d, 1, col_ok, there) * inv_w[:, None]
            df = f * along[:, None] - tl.dot(pull, w, input_precision=ROUGH)
            if HAS_GE:
                at = ge_ptr + b * ge_b + channels * ge_d
                ge = tl.load(at, mask=there, other=0.0).to(tl.float32)
                df += weights[:, None] * ge[None, :]
            at = rows[:, None] * df_n + channels[None, :] * df_d
            tl.store(df_ptr + b * df_b + at, df, mask=inside[:, None] & there[None, :])
        pull = tl.trans(pull)
        first = item == pid
        for start in range(0, d, BLOCK_D):
            channels = start + tl.arange(0, BLOCK_D)
            there = channels < d
            f = load_tile(f_ptr + b * f_b, rows, channels, f_n, f_d, inside, there)
            at = cols[:, None] * d + channels[None, :]
            here = col_ok[:, None] & there[None, :]
            before = tl.load(part_ptr + at, mask=here & (not first), other=0.0)
            part = tl.dot(pull, f, before, input_precision=ROUGH)
            tl.store(part_ptr + at, part, mask=here)
    part_ptr += m * d
    tl.store(part_ptr + cols, pull_sum, mask=col_ok)
    if WANT_SCALARS:
        tl.store(part_ptr + m, d_mu)
        tl.store(part_ptr + m + 1, d_eps)


@triton.jit
def prototype_gradient(
    w_ptr, part_ptr, programs, m, d, dw_ptr,
    BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Sum the programs' parts for one prototype and backpropagate through its normalization."""
    i = tl.program_id(0)
    channels = tl.arange(0, BLOCK_D)
    ok = channels < d
    total = tl.zeros((BLOCK_D,), tl.float32)
    weight = tl.zeros((BLOCK_G,), tl.float32)
    for start in range(0, programs, BLOCK_G):
        g = start + tl.arange(0, BLOCK_G)
        base = g.to(tl.int64) * (m * d + m + 2)
        at = base[:, None] + (i * d + channels)[None, :]
        part = tl.load(part_ptr + at, mask=(g < programs)[:, None] & ok[None, :], other=0.0)
        total += tl.sum(part, 0)
        weight += tl.load(part_ptr + base + m * d + i, mask=g < programs, other=0.0)
    w = tl.load(w_ptr + i * d + channels, mask=ok, other=0.0).to(tl.float32)
    ww = tl.sum(w * w, 0)
    inv = tl.rsqrt(tl.maximum(ww, 1.0))
    unit = w * inv
    grad = unit * tl.sum(weight, 0) - total
    radial = tl.where(ww > EDGE, tl.sum(unit * grad, 0), 0.0)
    tl.store(dw_ptr + i * d + channels, inv * (grad - unit * radial), mask=ok)
