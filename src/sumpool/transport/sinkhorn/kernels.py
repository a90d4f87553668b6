"""Fused kernels of Sinkhorn's iterations: one program solves one image, its scores kept on chip.

With scores s = −ε c, log_row = −log n (−∞ without mass) and ψ_0 = 0, the forward pass is

    φ_t = log_row − LSE_i(s + ψ_{t−1}),   ψ_t = −log m − LSE_j(s + φ_t),   t = 1, …, T
    π = exp(log_row) · softmax_i(s + ψ_T)

and stores ψ_0, …, ψ_T. The backward pass goes through the same steps in reverse order.
With P = exp(s + φ_t + ψ_t + log m) = softmax_j(s + φ_t) and Q = softmax_i(s + ψ_{t−1}),

    ∂φ_t,j = −Σ_i P_ji ∂ψ_t,i,   ∂ψ_{t−1},i = −Σ_j Q_ji ∂φ_t,j,   ∂s −= P ∂ψ_t + Q ∂φ_t

where φ_t is recomputed from ψ_{t−1}. All arithmetic is in float32. m is a compile-time constant:
its divisors determine the layout of a tile over threads.
"""
# Kernels are written in Triton's language, whose values have no Python types.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False

from __future__ import annotations

import triton
import triton.language as tl

from sumpool.transport.fused.tiles import load_tile, valid_rows


@triton.jit
def read_scores(s_ptr, b, rows, cols, ok, n, M: tl.constexpr):
    """Load the scores of image ``b``: 0 in rows without mass, −∞ in padding columns."""
    scores = load_tile(s_ptr + b * n * M, rows, cols, M, 1, ok, cols < M)
    return tl.where((cols < M)[None, :], scores, -float("inf"))


@triton.jit
def log_masses(ok):
    """Logarithm of each feature's mass, −∞ for features without mass."""
    return tl.where(ok, -tl.log(tl.sum(ok.to(tl.float32), 0)), -float("inf"))


@triton.jit
def row_exponentials(x):
    """exp(x_ji − max_i x_ji), its sums over i, and the maxima."""
    top = tl.max(x, 1)
    e = tl.exp(x - top[:, None])
    return e, tl.sum(e, 1), top


@triton.jit
def column_log_sums(x, ok):
    """LSE_j(x_ji); 0 for columns that are not ``ok``, in which x is −∞."""
    top = tl.where(ok, tl.max(x, 0), 0.0)
    total = tl.where(ok, tl.sum(tl.exp(x - top[None, :]), 0), 1.0)
    return top + tl.log(total)


@triton.jit
def sinkhorn_forward(
    s_ptr, mask_ptr, log_m, iterations, n, plan_ptr, psi_ptr,
    HAS_MASK: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Compute the plan (n, m) of one image and its ψ_0, …, ψ_T (T + 1, m)."""
    b = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_M)
    col_ok = cols < M
    ok = valid_rows(mask_ptr, b, rows, n, HAS_MASK)
    scores = read_scores(s_ptr, b, rows, cols, ok, n, M)
    log_row = log_masses(ok)
    psi = tl.zeros((BLOCK_M,), tl.float32)
    at = psi_ptr + b * (iterations + 1) * M + cols
    tl.store(at, psi, mask=col_ok)
    for _ in range(iterations):
        _e, total, top = row_exponentials(scores + psi[None, :])
        phi = log_row - (top + tl.log(total))
        psi = -log_m - column_log_sums(scores + phi[:, None], col_ok)
        at += M
        tl.store(at, psi, mask=col_ok)
    e, total, _top = row_exponentials(scores + psi[None, :])
    plan = e * (tl.exp(log_row) / total)[:, None]
    at = plan_ptr + b * n * M + rows[:, None] * M + cols[None, :]
    plan = tl.where(ok[:, None], plan, 0.0)
    tl.store(at, plan, mask=(rows < n)[:, None] & col_ok[None, :])


@triton.jit
def sinkhorn_backward(
    g_ptr, s_ptr, mask_ptr, log_m, iterations, n, psi_ptr, ds_ptr,
    HAS_MASK: tl.constexpr, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the scores (n, m) of one image."""
    b = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_M)
    col_ok = cols < M
    ok = valid_rows(mask_ptr, b, rows, n, HAS_MASK)
    scores = read_scores(s_ptr, b, rows, cols, ok, n, M)
    log_row = log_masses(ok)
    first = psi_ptr + b * (iterations + 1) * M + cols
    at = first + iterations * M
    psi = tl.load(at, mask=col_ok, other=0.0)
    before = tl.load(at - M, mask=col_ok, other=0.0)

    # The softmax of the last scaling.
    e, total, _top = row_exponentials(scores + psi[None, :])
    share = e * (1.0 / total)[:, None]
    to_plan = load_tile(g_ptr + b * n * M, rows, cols, M, 1, ok, col_ok)
    to_plan -= tl.sum(share * to_plan, 1)[:, None]
    to_scores = tl.exp(log_row)[:, None] * share * to_plan
    to_psi = tl.sum(to_scores, 0)

    for k in range(iterations):
        # Loaded one iteration ahead to hide memory latency.
        earlier = tl.maximum(iterations - k - 2, 0)
        earlier = tl.load(first + earlier * M, mask=col_ok, other=0.0)
        e, total, top = row_exponentials(scores + before[None, :])
        phi = log_row - (top + tl.log(total))
        through = tl.exp(scores + phi[:, None] + (psi + log_m)[None, :]) * to_psi[None, :]
        to_phi = -tl.sum(through, 1)
        to_scores -= through
        through = e * (to_phi / total)[:, None]
        to_psi = -tl.sum(through, 0)
        to_scores -= through
        psi = before
        before = earlier
    at = ds_ptr + b * n * M + rows[:, None] * M + cols[None, :]
    to_scores = tl.where(ok[:, None], to_scores, 0.0)
    tl.store(at, to_scores, mask=(rows < n)[:, None] & col_ok[None, :])
