"""Device functions shared by the fused kernels: costs of a tile, assignment, root search.

Symbols as in docs/notation.md: f features, w prototypes, c costs, q softmax of −εc over the
prototypes, l its log-sum, x = τ + l log-odds. All arithmetic is in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Maximum number of steps of the root search, and number of refinement steps.
SEARCH_STEPS = tl.constexpr(40)
REFINE_STEPS = tl.constexpr(3)
# Tolerance of the search, relative to the log-odds of the goal.
CLOSE = tl.constexpr(1e-6)
# 16 ulps of float32: squared distances below this share of the squared norms count as 0.
NOISE = tl.constexpr(1.9073486328125e-06)
# Squared norm above which the normalization affects gradients, as in the plain path.
EDGE = tl.constexpr(1.0 + 1.9073486328125e-06)


@triton.jit
def load_tile(ptr, rows, cols, row_stride, col_stride, row_ok, col_ok):
    """Load a (rows, cols) tile in float32, 0 outside."""
    at = rows[:, None] * row_stride + cols[None, :] * col_stride
    return tl.load(ptr + at, mask=row_ok[:, None] & col_ok[None, :], other=0.0).to(tl.float32)


@triton.jit
def tile_costs(
    f_ptr, f_n, f_d, w_ptr, rows, row_ok, m, d,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Distances c of a tile of features to all prototypes, with their products and norms."""
    cols = tl.arange(0, BLOCK_M)
    dot = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    ff = tl.zeros((BLOCK_N,), tl.float32)
    ww = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, d, BLOCK_D):
        channels = start + tl.arange(0, BLOCK_D)
        f = load_tile(f_ptr, rows, channels, f_n, f_d, row_ok, channels < d)
        w = load_tile(w_ptr, cols, channels, d, 1, cols < m, channels < d)
        dot += tl.dot(f, tl.trans(w), input_precision=PRECISION)
        ff += tl.sum(f * f, 1)
        ww += tl.sum(w * w, 1)
    inv_f = tl.rsqrt(tl.maximum(ff, 1.0))
    inv_w = tl.rsqrt(tl.maximum(ww, 1.0))
    cos = dot * inv_f[:, None] * inv_w[None, :]
    norms = (ff * inv_f * inv_f)[:, None] + (ww * inv_w * inv_w)[None, :]
    square = norms - 2.0 * cos
    cost = tl.sqrt(tl.where(square > NOISE * norms, square, 0.0))
    return cost, cos, ff, inv_f, inv_w


@triton.jit
def assign(cost, eps, m, BLOCK_M: tl.constexpr):
    """Split of each feature over the prototypes, q = softmax(−εc), and the log-sum l."""
    score = tl.where((tl.arange(0, BLOCK_M) < m)[None, :], -eps * cost, -float("inf"))
    top = tl.max(score, 1)
    e = tl.exp(score - top[:, None])
    total = tl.sum(e, 1)
    return e / total[:, None], top + tl.log(total)


@triton.jit
def solve_log_odds(l, ok, count, mu, rest):
    """x = τ + l for the root τ of mean σ(τ + l) = μ, over a block that holds the whole image.

    Bracketed Newton on logit(mean σ); the mirrored problem for μ > 1/2, as in the plain solver.
    """
    target = tl.maximum(tl.minimum(mu, rest), 1e-30)
    sign = tl.where(mu > rest, -1.0, 1.0)
    u = tl.where(ok, sign * l, -float("inf"))
    u = u - tl.max(u, 0)
    goal = tl.log(target) - tl.log(1.0 - target)
    low = goal
    high = goal - tl.min(tl.where(ok, u, 0.0), 0)
    tau = goal - tl.sum(tl.where(ok, u, 0.0), 0) / count
    close = CLOSE * (1.0 + tl.abs(goal))
    missing = high - low + 1.0
    step = 0
    while (step < SEARCH_STEPS) & (tl.abs(missing) > close):
        share = tl.sigmoid(tau + u)
        mean = tl.sum(share, 0) / count
        spread = tl.sum(share * (1.0 - share), 0) / count
        missing = goal - (tl.log(mean) - tl.log(1.0 - mean))
        # The slope of logit(mean σ) is at most 1: the root is at least |missing| away.
        low = tl.where(missing > 0, tl.maximum(low, tau + missing), low)
        high = tl.where(missing > 0, high, tl.minimum(high, tau + missing))
        newton = tau + missing * mean * (1.0 - mean) / spread
        inside = (newton >= low) & (newton <= high)
        # Close to the root, τ is kept: on a plateau the Newton step is 0/0 and the bracket wide.
        there = tl.abs(missing) <= close
        tau = tl.where(there, tau, tl.where(inside, newton, 0.5 * (low + high)))
        step += 1
    # Near the root the log-odds are small numbers: a few steps on them reach the last digits, which
    # τ, as large as ε, cannot hold.
    x = tau + u
    for _ in range(REFINE_STEPS):
        share = tl.sigmoid(x)
        mean = tl.sum(share, 0) / count
        spread = tl.sum(share * (1.0 - share), 0) / count
        missing = goal - (tl.log(mean) - tl.log(1.0 - mean))
        move = missing * mean * (1.0 - mean) / spread
        x = x + tl.where((move > -0.1) & (move < 0.1), move, 0.0)
    return sign * x


@triton.jit
def slopes(x, ok):
    """a = w/Σw with w = σ(1 − σ), correct even if every w underflows."""
    size = tl.abs(x)
    log_w = tl.where(ok, -size - 2.0 * tl.log(1.0 + tl.exp(-size)), -float("inf"))
    e = tl.exp(log_w - tl.max(log_w, 0))
    return e / tl.sum(e, 0)


@triton.jit
def valid_rows(mask_ptr, b, rows, n, HAS_MASK: tl.constexpr):
    """Whether each of ``rows`` is a valid feature."""
    ok = rows < n
    if HAS_MASK:
        ok = ok & (tl.load(mask_ptr + b * n + rows, mask=ok, other=0) != 0)
    return ok


@triton.jit
def settings(mu, rest, eps, mu_ptr, eps_ptr, HAS_MU: tl.constexpr, HAS_EPS: tl.constexpr):
    """μ, 1 − μ and ε, loaded from memory if they are tensors."""
    if HAS_MU:
        mu = tl.load(mu_ptr).to(tl.float32)
        rest = 1.0 - mu
    if HAS_EPS:
        eps = tl.load(eps_ptr).to(tl.float32)
    return mu, rest, eps
